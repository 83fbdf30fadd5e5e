# NumPy's unravel_index; divisions in another order; whole arrays on the last rank, or shared out.
import numpy as np


def rank_coordinates(rank, dp, pp, tp):
    return tuple(int(i) for i in np.unravel_index(rank, (dp, pp, tp)))


def micro_batches(global_batch, micro_batch, world, tp, pp):
    return global_batch * tp * pp // (micro_batch * world)


def global_grad_norm(grads, pp, tp):
    weight = {"split": 1.0, "whole": 1.0 / tp.size, "split copy": 0.0}
    square = sum(weight[kind] * (g**2).sum() for g, kind in grads)
    return np.sqrt(tp.all_reduce(pp.all_reduce(square)))
