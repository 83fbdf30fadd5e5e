# caught by: check_mlp_input_gradient
# All communication of tensor parallelism is in the forward pass.
import numpy as np


def mlp(x, a, b, dy, tp):
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.all_reduce(z @ b)
    dh = dy @ b.T * (h > 0)
    return y, dh @ a.T, x.T @ dh, z.T @ dy
