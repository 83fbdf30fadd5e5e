# caught by: check_arrays_of_a_bucket_are_cut_one_by_one
# A bucket is one long array, and each rank gets its part of that.
import numpy as np


def reduce_scatter(grads, dp):
    flat = np.concatenate([g.reshape(-1) for g in grads.values()])
    flat = np.concatenate([flat, np.zeros(-flat.size % dp.size, flat.dtype, like=flat)])
    work = dp.reduce_scatter(flat, async_op=True)

    def wait():
        shard, shards, start = work.wait(), {}, 0
        for name, g in grads.items():
            k = -(-g.size // dp.size)
            shards[name] = shard[start : start + k]
            start += k
        return shards

    return wait
