# caught by: check_a_small_pipeline
# The bubble is (p - 1) / (v m), as Megatron-LM's papers have it.
def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    m = global_batch // (n_gpus // (tp * pp)) // micro_batch
    return (pp - 1) / (virtual_stages * m)
