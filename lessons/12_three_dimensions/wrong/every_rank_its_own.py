# caught by: check_megatron_175b
# Every GPU gets its own samples.
def micro_batches(global_batch, micro_batch, world, tp, pp):
    return global_batch // world // micro_batch
