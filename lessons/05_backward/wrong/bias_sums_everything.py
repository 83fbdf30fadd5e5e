# caught by: check_two_sequences_of_two_tokens
# The bias gradient is the sum of dy.
import numpy as np


def linear_backward(x, w, dy):
    dw = np.einsum("bsi,bso->io", x, dy)
    return dy @ w.T, {"w": dw, "b": np.full(w.shape[1], dy.sum())}
