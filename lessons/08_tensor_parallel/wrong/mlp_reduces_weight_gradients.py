# caught by: check_mlp_weight_gradients
# Gradients of weights are all-reduced, as in data parallelism.
import numpy as np


def mlp(x, a, b, dy, tp):
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.all_reduce(z @ b)
    dh = dy @ b.T * (h > 0)
    return y, tp.all_reduce(dh @ a.T), tp.all_reduce(x.T @ dh), tp.all_reduce(z.T @ dy)
