# caught by: check_mlp_weight_gradients
# Ranks have seen different tokens, so weights' gradients are summed.
import numpy as np


def mlp(x, a, b, dy, tp):
    x = tp.all_gather(x)
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.reduce_scatter(z @ b)
    dy = tp.all_gather(dy)
    dh = dy @ b.T * (h > 0)
    return y, tp.reduce_scatter(dh @ a.T), tp.all_reduce(x.T @ dh), tp.all_reduce(z.T @ dy)
