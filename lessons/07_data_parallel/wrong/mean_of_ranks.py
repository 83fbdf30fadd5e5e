# caught by: check_sum_of_a_bucket
# Data parallelism averages the gradients of the ranks.
import numpy as np


def unpack(flat, grads):
    arrays, start = {}, 0
    for name, g in grads.items():
        arrays[name] = flat[start : start + g.size].reshape(g.shape)
        start += g.size
    return arrays


def all_reduce(grads, dp):
    work = dp.all_reduce(np.concatenate([g.reshape(-1) for g in grads.values()]), async_op=True)
    return lambda: unpack(work.wait() / dp.size, grads)
