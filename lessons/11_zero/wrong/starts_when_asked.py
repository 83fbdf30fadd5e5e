# caught by: check_it_is_under_way_and_waits_for_nobody
# Nothing may wait, so everything happens in the function that waits.
import numpy as np


def reduce_scatter(grads, dp):
    def wait():
        tables = []
        for g in grads.values():
            zeros = np.zeros(-g.size % dp.size, g.dtype, like=g)
            tables.append(np.concatenate([g.reshape(-1), zeros]).reshape(dp.size, -1))
        row = dp.reduce_scatter(np.concatenate(tables, axis=1))[0]
        shards, start = {}, 0
        for name, table in zip(grads, tables):
            shards[name] = row[start : start + table.shape[1]]
            start += table.shape[1]
        return shards

    return wait
