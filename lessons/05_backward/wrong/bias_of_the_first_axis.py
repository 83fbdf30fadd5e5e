# caught by: check_unequal_sizes
# The bias gradient is the sum over the batch, which is the first axis.
import numpy as np


def linear_backward(x, w, dy):
    return dy @ w.T, {"w": np.einsum("bsi,bso->io", x, dy), "b": dy.sum(axis=0)}
