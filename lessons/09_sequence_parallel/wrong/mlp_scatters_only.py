# caught by: check_mlp_forward
# Each rank has its tokens, so it takes its rows of its own product.
import numpy as np


def mlp(x, a, b, dy, tp):
    x = tp.all_gather(x)
    h = x @ a
    z = np.maximum(h, 0)
    y = np.split(z @ b, tp.size)[tp.rank]
    dy = tp.all_gather(dy)
    dh = dy @ b.T * (h > 0)
    return y, tp.reduce_scatter(dh @ a.T), x.T @ dh, z.T @ dy
