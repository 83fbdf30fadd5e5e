"""ZeRO: the dp ranks share what data parallelism repeats on each of them (arXiv 1910.02054).

    stage  each rank has 1/dp of    sent per step, of Psi parameters (section 7)
    1      the optimizer's state    reduce-scatter gradients, all-gather weights: as an all-reduce
    2      and the gradients        the same, in each micro-batch
    3      and the weights          weights gathered for a layer twice, forward and backward

Every array is flattened, padded with zeros to a multiple of dp, and cut: rank r has row r of
[dp, k]. Since each array keeps its name, weight decay, LAMB's norms and checkpoints work as
before; the arrays of a bucket travel together.
"""

from itertools import accumulate
from math import lcm

import numpy as np

from gpt_numpy.checkpoint import KINDS


def shard_size(size, dp, alignment=1):
    """Elements in each rank's shard of `size`, whose padded total divides by `alignment`, too.

    >>> shard_size(10, dp=4), shard_size(5, dp=4, alignment=8)
    (3, 2)
    >>> shard_size(266_240, dp=768, alignment=1536)
    348
    """
    multiple = lcm(dp, alignment)
    return -(-size // multiple) * multiple // dp


def padding(size, dp, alignment=1):
    """Elements of padding in each rank's shard.

    It is at the end of the array, so it can reach over several ranks.

    >>> padding(10, dp=4), padding(5, dp=4, alignment=8)
    ([0, 0, 0, 2], [0, 0, 1, 2])
    """
    k = shard_size(size, dp, alignment)
    return [min(k, max(0, (rank + 1) * k - size)) for rank in range(dp)]


def rows(x, dp):  # [...] -> [dp, k], rank r's shard in row r
    k = shard_size(x.size, dp)
    flat = x.reshape(-1)
    if x.size < dp * k:
        flat = np.concatenate([flat, np.zeros(dp * k - x.size, x.dtype, like=x)])
    return flat.reshape(dp, k)


def shard(x, dp):  # [...] -> [k], a copy
    return rows(x, dp.size)[dp.rank].copy()


def reduce_scatter(grads, dp):
    """Start the reduction of a bucket of gradients; returns what waits for this rank's shards."""
    table = np.concatenate([rows(g, dp.size) for g in grads.values()], axis=1)  # [dp, sum of k]
    work = dp.reduce_scatter(table, axis=0, async_op=True)  # [1, sum of k]
    ends = list(accumulate(shard_size(g.size, dp.size) for g in grads.values()))
    names = list(grads)  # the gradients themselves need not be kept
    return lambda: dict(zip(names, np.split(work.wait()[0], ends[:-1])))


def all_gather(shards, shapes, dp):
    """The whole arrays of a bucket, {name: array}, from the ranks' shards [k] and their shapes."""
    table = dp.all_gather(np.concatenate(list(shards.values()))[None])  # [dp, sum of k]
    whole, start = {}, 0
    for name, part in shards.items():
        columns = table[:, start : start + part.size]  # [dp, k]
        start += part.size
        size = int(np.prod(shapes[name]))
        whole[name] = columns.reshape(-1)[:size].reshape(shapes[name])
    return whole


def fill(p, arrays, prefix=""):
    """Put arrays, by their published names, into the tree p in place; None where there is none."""
    for key, value in p.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict):
                fill(child, arrays, f"{prefix}{key}.")
            else:
                p[key] = arrays.get(prefix + KINDS[key])


def gathered(layer, gather, release):
    """Stage 3: the layer, its weights whole only while it runs.

    `gather(p)` fills p, `release(p)` empties it.
    """

    def run(x, p, *args):
        gather(p)
        y, back = layer(x, p, *args)
        release(p)

        def back_gathered(dy):
            gather(p)
            dx, grads = back(dy)
            release(p)
            return dx, grads

        return y, back_gathered

    return run
