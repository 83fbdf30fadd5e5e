# Rows written into a table of zeros; the shards are copies.
import numpy as np


def reduce_scatter(grads, dp):
    first = next(iter(grads.values()))
    ks = {name: (g.size + dp.size - 1) // dp.size for name, g in grads.items()}
    table = np.zeros((dp.size, sum(ks.values())), first.dtype, like=first)
    start = 0
    for name, g in grads.items():
        flat, k = g.reshape(-1), ks[name]
        for rank in range(dp.size):
            part = flat[rank * k : (rank + 1) * k]
            table[rank, start : start + part.size] = part
        start += k
    work = dp.reduce_scatter(table, axis=0, async_op=True)

    def wait():
        row, shards, at = work.wait().reshape(-1), {}, 0
        for name, k in ks.items():
            shards[name], at = row[at : at + k].copy(), at + k
        return shards

    return wait
