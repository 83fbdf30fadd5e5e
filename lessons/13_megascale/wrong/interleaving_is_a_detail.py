# caught by: check_megascale_rows
# Interleaving is an implementation detail; the bubble depends on stages and micro-batches.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    m = global_batch // (n_gpus // (tp * pp)) // micro_batch
    return (pp - 1) / (m + pp - 1)
