# caught by: check_it_is_under_way_and_waits_for_nobody
# One reduce-scatter for each array is simpler, and sends no more bytes.
import numpy as np


def reduce_scatter(grads, dp):
    works = {}
    for name, g in grads.items():
        zeros = np.zeros(-g.size % dp.size, g.dtype, like=g)
        flat = np.concatenate([g.reshape(-1), zeros])
        works[name] = dp.reduce_scatter(flat, async_op=True)
    return lambda: {name: work.wait() for name, work in works.items()}
