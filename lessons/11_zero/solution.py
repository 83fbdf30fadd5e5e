"""Lesson 11: the answers."""

from itertools import accumulate
from math import prod

import numpy as np


def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    sizes = {1: 12, 2: grad_bytes, 3: 2}  # stage that splits it: bytes
    return sum(n_params * size / (dp if zero >= stage else 1) for stage, size in sizes.items())


def rows(x, n):  # [...] -> [n, k]
    flat = x.reshape(-1)
    if flat.size % n:
        flat = np.concatenate([flat, np.zeros(-flat.size % n, x.dtype, like=x)])
    return flat.reshape(n, flat.size // n)


def reduce_scatter(grads, dp):
    tables = [rows(g, dp.size) for g in grads.values()]  # [n, k] each
    work = dp.reduce_scatter(np.concatenate(tables, axis=1), async_op=True)  # [1, sum of k]
    ends = list(accumulate(table.shape[1] for table in tables))
    names = list(grads)  # the function holds these, and not the gradients
    return lambda: dict(zip(names, np.split(work.wait()[0], ends[:-1])))


def all_gather(shards, shapes, dp):
    table = dp.all_gather(np.concatenate(list(shards.values()))[None])  # [n, sum of k]
    ends = list(accumulate(shard.size for shard in shards.values()))
    whole = {}
    for name, columns in zip(shards, np.split(table, ends[:-1], axis=1)):  # [n, k]
        whole[name] = columns.reshape(-1)[: prod(shapes[name])].reshape(shapes[name])
    return whole


def zero1_step(weights, grads, optimizer, lr, dp):
    mine = {name: rows(w, dp.size)[dp.rank].copy() for name, w in weights.items()}  # [k] each
    optimizer.step(mine, reduce_scatter(grads, dp)(), lr)
    return all_gather(mine, {name: w.shape for name, w in weights.items()}, dp)


def clip_shards(shards, max_norm, dp):
    square = dp.all_reduce(sum((g * g).sum() for g in shards.values()))  # []
    norm = float(np.sqrt(square))
    scale = max_norm / max(norm, max_norm)
    return {name: g * scale for name, g in shards.items()}, norm
