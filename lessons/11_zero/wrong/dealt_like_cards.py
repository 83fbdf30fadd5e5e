# caught by: check_each_rank_gets_its_shard_of_the_sum
# Deal the numbers out like cards, so that no rank gets all the padding.
import numpy as np


def reduce_scatter(grads, dp):
    n, tables = dp.size, []
    for g in grads.values():
        flat = g.reshape(-1)
        zeros = np.zeros(-flat.size % n, flat.dtype, like=flat)
        tables.append(np.concatenate([flat, zeros]).reshape(-1, n).T)
    work = dp.reduce_scatter(np.concatenate(tables, axis=1), async_op=True)

    def wait():
        row, shards, start = work.wait()[0], {}, 0
        for name, table in zip(grads, tables):
            shards[name] = row[start : start + table.shape[1]]
            start += table.shape[1]
        return shards

    return wait
