"""Lesson 7: the answers."""

import numpy as np


def dp_mean_gradient(local_mean_grads, n_tokens):
    sums = [mean * n for mean, n in zip(local_mean_grads, n_tokens)]  # n times [d]
    return sum(sums) / sum(n_tokens)  # [d]


def accumulate(sums, grads):
    for name, g in grads.items():
        if name in sums:
            sums[name] += g
        else:
            sums[name] = g


def all_reduce(grads, dp):
    flat = np.concatenate([g.reshape(-1) for g in grads.values()])  # [k]
    shapes = {name: g.shape for name, g in grads.items()}
    work = dp.all_reduce(flat, async_op=True)

    def wait():
        summed, arrays, start = work.wait(), {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            arrays[name] = summed[start : start + size].reshape(shape)
            start += size
        return arrays

    return wait


def accumulated_gradient(sum_grads, tokens, dp):
    total = int(dp.all_reduce(np.array(sum(tokens))))
    own = sum_grads[0].copy()  # [d]
    for g in sum_grads[1:]:
        own += g
    return dp.all_reduce(own) / total  # [d]


def reduce_and_clip(grads, max_norm, dp):
    summed = {name: dp.all_reduce(g) for name, g in grads.items()}
    norm = np.sqrt(sum((g * g).sum() for g in summed.values()))  # []
    scale = 1 / np.maximum(norm / max_norm, 1)  # []
    return {name: g * scale for name, g in summed.items()}
