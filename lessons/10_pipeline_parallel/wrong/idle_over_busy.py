# caught by: check_four_stages
# The bubble is the p - 1 extra slots over the m useful ones.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return (pp - 1) / (virtual_stages * micro_batches)
