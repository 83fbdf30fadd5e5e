# caught by: check_two_by_two
# Each stage has its own parameters, so nothing is double.
import numpy as np


def global_grad_norm(grads, pp, tp):
    square = sum((g * g).sum() for g, kind in grads if kind != "whole" or tp.rank == 0)
    return np.sqrt(pp.all_reduce(tp.all_reduce(square)))
