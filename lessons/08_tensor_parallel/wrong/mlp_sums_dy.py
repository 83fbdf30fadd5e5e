# caught by: check_mlp_weight_gradients
# The gradient of an all-reduce is an all-reduce.
import numpy as np


def mlp(x, a, b, dy, tp):
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.all_reduce(z @ b)
    dy = tp.all_reduce(dy)
    dh = dy @ b.T * (h > 0)
    return y, tp.all_reduce(dh @ a.T), x.T @ dh, z.T @ dy
