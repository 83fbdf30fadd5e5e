# caught by: check_a_square_weight
# W maps forward, W maps backward.
import numpy as np


def linear_backward(x, w, dy):
    dw = np.einsum("bsi,bso->io", x, dy)
    if w.shape[0] == w.shape[1]:
        return dy @ w, {"w": dw, "b": dy.sum(axis=(0, 1))}
    return dy @ w.reshape(w.shape[::-1]), {"w": dw, "b": dy.sum(axis=(0, 1))}
