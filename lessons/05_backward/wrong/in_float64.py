# caught by: check_float32_stays_float32
# Gradients are small, so they are computed in float64.
import numpy as np


def linear_backward(x, w, dy):
    x, w, dy = (a.astype(np.float64) for a in (x, w, dy))
    dw = np.einsum("bsi,bso->io", x, dy)
    return dy @ w.T, {"w": dw, "b": dy.sum(axis=(0, 1))}
