# caught by: check_mlp_sends_activations_only
# It is simplest to gather the weights and to keep the tokens.
import numpy as np


def mlp(x, a, b, dy, tp):
    a, b = tp.all_gather(a, axis=1), tp.all_gather(b)
    h = x @ a
    z = np.maximum(h, 0)
    dh = dy @ b.T * (h > 0)
    da, db = tp.reduce_scatter(x.T @ dh, axis=1), tp.reduce_scatter(z.T @ dy)
    return z @ b, dh @ a.T, da, db
