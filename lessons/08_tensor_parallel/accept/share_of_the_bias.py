# Every rank adds b/tp before the all-reduce; the loss by each rank's own log-sum-exp.
import numpy as np

from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def row_parallel_linear(x, w, b, tp):
    return tp.all_reduce(x @ w + b / tp.size)


def leave(tp):
    return Pair(lambda y: tp.all_reduce(y, op="sum"), backward=identity)


def mlp(x, a, b, dy, tp):
    f, g = Pair(identity, tp.all_reduce), Pair(tp.all_reduce, identity)
    x = f.forward(x)
    z = x @ a
    z = z * (z > 0)
    y = g.forward(z @ b)
    dz = g.backward(dy) @ b.T
    dh = np.where(z > 0, dz, 0)
    return [y, f.backward(dh @ a.T), (dh.T @ x).T, (dy.T @ z).T]


def cross_entropy(logits, targets, total, tp, n_vocab):
    n, m = logits.shape
    ids = tp.rank * m + np.arange(m, like=targets)  # [m]
    logits = np.where(ids < n_vocab, logits, -1e30).astype(logits.dtype)
    own = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - own).sum(axis=-1, keepdims=True)) + own  # [n, 1]
    top = tp.all_reduce(lse, op="max")
    lse = top + np.log(tp.all_reduce(np.exp(lse - top)))
    hit = (ids == targets[:, None]).astype(logits.dtype)  # [n, m], one-hot
    counted = (targets >= 0).astype(logits.dtype)
    picked = tp.all_reduce((hit * logits).sum(axis=-1))
    loss = (counted * (lse[:, 0] - picked)).sum() / total

    def back(dloss):
        p = np.exp(logits - lse)
        return ((p - hit) * counted[:, None] * (dloss / total)).astype(logits.dtype)

    return loss, back
