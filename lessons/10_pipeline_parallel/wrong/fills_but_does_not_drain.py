# caught by: check_one_micro_batch
# A stage waits until the first micro-batch has come; after that it works.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return (pp - 1) / (2 * micro_batches * virtual_stages + pp - 1)
