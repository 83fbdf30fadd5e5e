# caught by: check_one_stage
# Sum the squares over all tensor-parallel ranks.
import numpy as np


def global_grad_norm(grads, pp, tp):
    square = sum((g * g).sum() for g, kind in grads if "copy" not in kind)
    return np.sqrt(pp.all_reduce(tp.all_reduce(square)))
