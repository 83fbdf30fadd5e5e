# caught by: check_one_stage_is_never_idle
# Each of the p stages waits p slots.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return pp / (micro_batches * virtual_stages + pp)
