# caught by: check_megatron_175b
# Pipeline stages share the batch.
def micro_batches(global_batch, micro_batch, world, tp, pp):
    return global_batch // (world // tp) // micro_batch
