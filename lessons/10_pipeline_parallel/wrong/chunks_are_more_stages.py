# caught by: check_interleaved
# v chunks on p devices are a pipeline of v p stages.
def bubble_fraction(pp, micro_batches, virtual_stages=1):
    stages = pp * virtual_stages
    return (stages - 1) / (micro_batches + stages - 1)
