# caught by: check_mlp_weight_gradients
# The gradient that arrives is already complete.
import numpy as np


def mlp(x, a, b, dy, tp):
    whole = tp.all_gather(x)
    h = whole @ a
    y = tp.reduce_scatter(np.maximum(h, 0) @ b)
    kept = np.split(h, tp.size)[tp.rank]
    dh = dy @ b.T * (kept > 0)
    return y, dh @ a.T, x.T @ dh, np.maximum(kept, 0).T @ dy
