# caught by: check_sum_of_a_bucket
# A gradient is a gradient, whatever its shape.
import numpy as np


def all_reduce(grads, dp):
    work = dp.all_reduce(np.concatenate([g.reshape(-1) for g in grads.values()]), async_op=True)

    def wait():
        flat, arrays, start = work.wait(), {}, 0
        for name, g in grads.items():
            arrays[name] = flat[start : start + g.size]
            start += g.size
        return arrays

    return wait
