# caught by: check_mlp_input_gradient
# Gradients of replicas are averaged, as in data parallelism.
import numpy as np


def mlp(x, a, b, dy, tp):
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.all_reduce(z @ b)
    dh = dy @ b.T * (h > 0)
    return y, tp.all_reduce(dh @ a.T) / tp.size, x.T @ dh, z.T @ dy
