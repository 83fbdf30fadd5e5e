# caught by: check_it_sends_what_an_all_reduce_does
# Data parallelism sums the gradients; ZeRO-1 only splits the optimizer after it.
import numpy as np


def cut(x, dp):
    flat = x.reshape(-1)
    zeros = np.zeros(-flat.size % dp.size, flat.dtype, like=flat)
    return np.concatenate([flat, zeros]).reshape(dp.size, -1)


def zero1_step(weights, grads, optimizer, lr, dp):
    mine = {name: cut(w, dp)[dp.rank].copy() for name, w in weights.items()}
    sums = {name: cut(dp.all_reduce(g), dp)[dp.rank] for name, g in grads.items()}
    optimizer.step(mine, sums, lr)
    new = {}
    for name, w in weights.items():
        flat = dp.all_gather(mine[name])
        new[name] = flat[: w.size].reshape(w.shape)
    return new
