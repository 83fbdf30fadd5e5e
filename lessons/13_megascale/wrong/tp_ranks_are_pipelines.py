# caught by: check_megascale_rows
# A pipeline is pp GPUs, so there are n_gpus / pp of them.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    busy = global_batch / (n_gpus / pp) / micro_batch * virtual_stages
    return (pp - 1) / (busy + pp - 1)
