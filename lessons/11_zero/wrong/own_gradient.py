# caught by: check_two_steps_of_adam
# Each rank updates its shard with its own gradient.
import numpy as np


def cut(x, dp):
    flat = x.reshape(-1)
    zeros = np.zeros(-flat.size % dp.size, flat.dtype, like=flat)
    return np.concatenate([flat, zeros]).reshape(dp.size, -1)


def zero1_step(weights, grads, optimizer, lr, dp):
    mine = {name: cut(w, dp)[dp.rank].copy() for name, w in weights.items()}
    sums = {name: cut(g, dp)[dp.rank] for name, g in grads.items()}
    optimizer.step(mine, sums, lr)
    new = {}
    for name, w in weights.items():
        flat = dp.all_gather(mine[name])
        new[name] = flat[: w.size].reshape(w.shape)
    return new
