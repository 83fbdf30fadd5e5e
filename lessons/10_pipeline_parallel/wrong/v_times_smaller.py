# caught by: check_interleaved
# v chunks make the bubble v times smaller.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return (pp - 1) / (micro_batches + pp - 1) / virtual_stages
