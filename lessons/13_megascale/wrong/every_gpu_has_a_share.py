# caught by: check_megascale_rows
# Every GPU takes its share of the batch.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    busy = global_batch / n_gpus / micro_batch * virtual_stages
    return (pp - 1) / (busy + pp - 1)
