# caught by: check_megascale_rows
# All micro-batches of the global batch go through the pipeline.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    busy = global_batch // micro_batch * virtual_stages
    return (pp - 1) / (busy + pp - 1)
