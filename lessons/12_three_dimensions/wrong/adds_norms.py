# caught by: check_other_meshes
# The norm of everything is the sum of the ranks' norms.
import numpy as np


def global_grad_norm(grads, pp, tp):
    square = sum((g * g).sum() for g, kind in grads
                 if kind == "split" or (kind == "whole" and tp.rank == 0))  # fmt: skip
    return pp.all_reduce(tp.all_reduce(np.sqrt(square)))
