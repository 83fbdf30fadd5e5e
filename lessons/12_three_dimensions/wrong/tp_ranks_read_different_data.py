# caught by: check_megascale_12288_gpus
# Tensor-parallel ranks read different data.
def micro_batches(global_batch, micro_batch, world, tp, pp):
    return global_batch // (world // pp) // micro_batch
