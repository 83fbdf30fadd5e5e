# caught by: check_mlp_forward
# Sequence parallelism ends with an all-reduce, as tensor parallelism does.
import numpy as np


def mlp(x, a, b, dy, tp):
    x = tp.all_gather(x)
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.all_reduce(z @ b)
    dy = tp.all_gather(dy)
    dh = dy @ b.T * (h > 0)
    return y, tp.reduce_scatter(dh @ a.T), x.T @ dh, z.T @ dy
