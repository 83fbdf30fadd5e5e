# Gathered as columns, [sum of k, n], and turned round.
import numpy as np


def all_gather(shards, shapes, dp):
    table = dp.all_gather(np.concatenate(list(shards.values()))[:, None], axis=1)
    whole, start = {}, 0
    for name, shard in shards.items():
        stop = start + shard.size
        flat = table[start:stop].swapaxes(0, 1).reshape(-1)
        size = 1
        for n in shapes[name]:
            size *= n
        whole[name], start = flat[:size].reshape(shapes[name]), stop
    return whole
