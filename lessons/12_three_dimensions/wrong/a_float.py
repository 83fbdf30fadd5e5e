# caught by: check_other_sizes
# 30.0 is as good as 30, also for a range.
def micro_batches(global_batch, micro_batch, world, tp, pp):
    return global_batch / (world / tp / pp) / micro_batch
