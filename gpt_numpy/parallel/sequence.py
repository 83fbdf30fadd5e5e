"""Sequence parallelism: between the split layers, each tp rank has 1/tp of the tokens.

Layer norms, residual sums and embeddings then hold 1/tp of the activations (arXiv 2205.05198,
section 4.2.2). An all-reduce is a reduce-scatter and an all-gather, so splitting it in two sends
no more bytes; but a linear layer gathers its input once more going backward, to hold a part only:

    enter   forward: all-gather        backward: reduce-scatter
    leave   forward: reduce-scatter    backward: all-gather

What is whole on every rank but used on its own tokens alone, a gain of a layer norm or a bias
added after `leave`, gets the gradient of those tokens alone; `reduce_partial` sums it over tp.
"""

import numpy as np

from gpt_numpy.layers import Pair
from gpt_numpy.parallel.data import pack, shapes_of, unpack
from gpt_numpy.parallel.tensor import split_axis


def enter(tp):
    return Pair(tp.all_gather, tp.reduce_scatter)


def leave(tp):
    return Pair(tp.reduce_scatter, tp.all_gather)


def positions(b, s, like, tp):  # -> [n/tp], of this rank's tokens between the split layers
    n = b * s
    if n % tp.size:
        raise ValueError(f"sequence parallel: {b} x {s} tokens do not divide by tp = {tp.size}")
    rows = np.arange(tp.rank * n // tp.size, (tp.rank + 1) * n // tp.size, like=like)  # [n/tp]
    return rows % s


def reduce_partial(grads, tp):
    """Sum over tp, in one all-reduce, the gradients of what each rank has whole: {name: array}."""
    partial = {name: g for name, g in grads.items() if split_axis(name) is None}
    if not partial:
        return grads
    summed = tp.all_reduce(pack(partial))
    return grads | unpack(summed, shapes_of(partial))
