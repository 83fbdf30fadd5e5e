# Weights first; one message with the count in it; a norm with an if; closures by partial.
from functools import partial

import numpy as np


def dp_mean_gradient(local_mean_grads, n_tokens):
    return np.average(np.stack(local_mean_grads), axis=0, weights=n_tokens)


def accumulate(sums, grads):
    for name in grads:
        if name not in sums:
            sums[name] = grads[name]
        else:
            np.add(sums[name], grads[name], out=sums[name])


def unpack(work, grads):
    ends = np.cumsum([g.size for g in grads.values()]).tolist()
    flat = work.wait()
    return {n: flat[e - g.size : e].reshape(g.shape) for e, (n, g) in zip(ends, grads.items())}


def all_reduce(grads, dp):
    work = dp.all_reduce(np.concatenate([g.reshape(-1) for g in grads.values()]), "sum", True)
    return partial(unpack, work, grads)


def accumulated_gradient(sum_grads, tokens, dp):
    mine = sum(sum_grads)
    return dp.all_reduce(mine) / int(dp.all_reduce(np.array([sum(tokens)]))[0])


def reduce_and_clip(grads, max_norm, dp):
    grads = {name: dp.all_reduce(g).copy() for name, g in grads.items()}
    norm = float(sum((g**2).sum() for g in grads.values())) ** 0.5
    if norm > max_norm:
        for g in grads.values():
            g *= max_norm / norm
    return grads
