# caught by: check_without_copies
# The norm of my parameters is the norm.
import numpy as np


def global_grad_norm(grads, pp, tp):
    square = sum((g * g).sum() for g, kind in grads
                 if kind == "split" or (kind == "whole" and tp.rank == 0))  # fmt: skip
    return np.sqrt(tp.all_reduce(square))
