# Of the whole time, m + (p - 1)/v passes through a stage, m are busy.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return 1 - micro_batches / (micro_batches + (pp - 1) / virtual_stages)
