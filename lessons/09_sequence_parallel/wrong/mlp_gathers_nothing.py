# caught by: check_mlp_forward
# The MLP works on each token alone, so nothing has to be gathered.
import numpy as np


def mlp(x, a, b, dy, tp):
    tp.barrier()
    h = x @ a
    z = np.maximum(h, 0)
    y = z @ b
    tp.barrier()
    dh = dy @ b.T * (h > 0)
    return y, dh @ a.T, x.T @ dh, z.T @ dy
