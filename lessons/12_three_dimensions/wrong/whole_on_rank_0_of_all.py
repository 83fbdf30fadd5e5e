# caught by: check_other_meshes
# What is whole is counted by the first rank of them all.
import numpy as np


def global_grad_norm(grads, pp, tp):
    first = tp.rank == 0 and pp.rank == 0
    square = sum((g * g).sum() for g, kind in grads
                 if kind == "split" or (kind == "whole" and first))  # fmt: skip
    return np.sqrt(pp.all_reduce(tp.all_reduce(square)))
