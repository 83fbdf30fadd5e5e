# caught by: check_interleaved
# Interleaving changes the memory, not the bubble.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return (pp - 1) / (micro_batches + pp - 1)
