# caught by: check_one_message_that_goes_on_behind
# The work is done when somebody asks for it.
import numpy as np


def unpack(flat, grads):
    arrays, start = {}, 0
    for name, g in grads.items():
        arrays[name] = flat[start : start + g.size].reshape(g.shape)
        start += g.size
    return arrays


def all_reduce(grads, dp):
    flat = np.concatenate([g.reshape(-1) for g in grads.values()])
    return lambda: unpack(dp.all_reduce(flat, async_op=True).wait(), grads)
