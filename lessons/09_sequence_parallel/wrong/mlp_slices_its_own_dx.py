# caught by: check_mlp_input_gradient
# The backward of an all-gather is taking one's own slice.
import numpy as np


def mlp(x, a, b, dy, tp):
    x = tp.all_gather(x)
    h = x @ a
    z = np.maximum(h, 0)
    y = tp.reduce_scatter(z @ b)
    dy = tp.all_gather(dy)
    dh = dy @ b.T * (h > 0)
    return y, np.split(dh @ a.T, tp.size)[tp.rank], x.T @ dh, z.T @ dy
