# caught by: check_mlp_forward
# The first matrix can be split by rows too; sums commute with the activation.
import numpy as np


def mlp(x, a, b, dy, tp):
    rows = np.split(tp.all_gather(a, axis=1), tp.size)[tp.rank]
    mine = np.split(x, tp.size, axis=1)[tp.rank]
    whole = tp.all_reduce(np.maximum(mine @ rows, 0))
    y = tp.all_reduce(np.split(whole, tp.size, axis=1)[tp.rank] @ b)
    h = x @ a
    dh = dy @ b.T * (h > 0)
    return y, tp.all_reduce(dh @ a.T), x.T @ dh, np.maximum(h, 0).T @ dy
