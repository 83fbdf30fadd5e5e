# caught by: check_mlp_sends_two_all_reduces
# Each rank puts the whole matrices together and keeps its part of the gradients.
import numpy as np


def mlp(x, a, b, dy, tp):
    a, b = tp.all_gather(a, axis=1), tp.all_gather(b)
    h = x @ a
    z = np.maximum(h, 0)
    dh = dy @ b.T * (h > 0)
    da, db = np.split(x.T @ dh, tp.size, axis=1), np.split(z.T @ dy, tp.size)
    return z @ b, dh @ a.T, da[tp.rank], db[tp.rank]
