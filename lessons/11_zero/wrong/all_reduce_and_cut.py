# caught by: check_half_of_an_all_reduce_is_sent
# Sum the gradients as always; then each rank keeps its shard.
import numpy as np


def reduce_scatter(grads, dp):
    works = {name: dp.all_reduce(g, async_op=True) for name, g in grads.items()}

    def wait():
        shards = {}
        for name, work in works.items():
            flat = work.wait().reshape(-1)
            flat = np.concatenate([flat, np.zeros(-flat.size % dp.size, flat.dtype, like=flat)])
            shards[name] = flat.reshape(dp.size, -1)[dp.rank]
        return shards

    return wait
