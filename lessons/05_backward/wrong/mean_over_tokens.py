# caught by: check_two_sequences_of_two_tokens
# Gradients are averages over the batch.
import numpy as np


def linear_backward(x, w, dy):
    n = x.shape[0] * x.shape[1]
    dw = np.einsum("bsi,bso->io", x, dy)
    return dy @ w.T, {"w": dw / n, "b": dy.sum(axis=(0, 1)) / n}
