# caught by: check_other_meshes
# To have the norm of the whole one needs the whole.
import numpy as np


def global_grad_norm(grads, pp, tp):
    square = 0
    for g, kind in grads:
        if kind == "split":
            g = tp.all_gather(g[None])
        if kind != "split copy":
            square = square + (g * g).sum()
    return np.sqrt(pp.all_reduce(square))
