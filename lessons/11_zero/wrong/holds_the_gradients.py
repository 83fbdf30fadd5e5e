# caught by: check_gradients_are_let_go
# When the sum is there, I look at the gradients again to see how long each was.
import numpy as np


def reduce_scatter(grads, dp):
    tables = []
    for g in grads.values():
        zeros = np.zeros(-g.size % dp.size, g.dtype, like=g)
        tables.append(np.concatenate([g.reshape(-1), zeros]).reshape(dp.size, -1))
    work = dp.reduce_scatter(np.concatenate(tables, axis=1), async_op=True)

    def wait():
        row, shards, start = work.wait()[0], {}, 0
        for name, g in grads.items():
            k = -(-g.size // dp.size)
            shards[name] = row[start : start + k]
            start += k
        return shards

    return wait
