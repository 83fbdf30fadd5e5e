"""Lesson 12: count in three dimensions: ranks, micro-batches, and each weight once.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 12` says what passes.
Hints are at the end.
"""

import numpy as np  # noqa: F401


def rank_coordinates(rank, dp, pp, tp):
    """Where a rank stands in the grid of dp x pp x tp ranks.

    Neighbouring ranks differ in tp, the coordinate that changes fastest; then comes pp, and dp
    changes slowest.
    rank: from 0 to dp * pp * tp - 1; dp, pp, tp: the grid's sizes
    -> a tuple of three whole numbers, the rank's coordinates along dp, pp and tp, from 0 on

    >>> rank_coordinates(5, dp=2, pp=2, tp=2)
    (1, 0, 1)
    >>> rank_coordinates(5, dp=2, pp=3, tp=2)
    (0, 2, 1)
    """
    raise NotImplementedError("divide, with remainders")


def micro_batches(global_batch, micro_batch, world, tp, pp):
    """How many micro-batches each pipeline runs in a step.

    global_batch: sequences in a step, of all ranks together; micro_batch: sequences that run
    through a pipeline together; world: how many ranks there are in all; tp, pp: how many of them
    share each matrix, and how many stages a pipeline has. What is left is dp. All sizes divide.
    -> a whole number

    >>> micro_batches(64, micro_batch=4, world=8, tp=1, pp=1)
    2
    """
    raise NotImplementedError("who has sequences of its own?")


def global_grad_norm(grads, pp, tp):
    """The 2-norm of the gradient of the whole model, in which every parameter is counted once.

    Every rank runs this after the gradients have been summed over dp, so dp plays no part.
    grads: this rank's gradients, a list of pairs of an array and its kind, which is one of

        "split"        a part of an array; the tp ranks have the others
        "whole"        an array that all tp ranks have, with the same gradient on each
        "split copy"   a part of the tied embedding on the last stage. The first stage has the
                       same part as "split", and the two gradients are equal: summed already

    Every rank has at least one that is "split". pp, tp: the groups (`rank`, `size`, `all_reduce`)
    -> [], the same on every rank, an array on its device. No more than numbers is sent.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):  # two numbers are split over the ranks, one is whole on both
    ...     mine = rank.device.put([[3.0], [4.0]][rank.rank])
    ...     grads = [(mine, "split"), (rank.device.put([12.0]), "whole")]
    ...     return float(global_grad_norm(grads, rank.pp, rank.tp).numpy())
    >>> run(program, Mesh(tp=2))  # the root of 9 + 16 + 144
    [13.0, 13.0]
    """
    raise NotImplementedError("sum the squares that count here, then over the ranks, then a root")


# Hints
#
# rank_coordinates  // and %. Which of the three is rank % tp? Write down the twelve ranks of
#                   2 x 3 x 2 first. Or let NumPy do it: np.unravel_index.
# micro_batches     The tp ranks of a group compute parts of the same products. Do they read the
#                   same sequences? And the stages of a pipeline?
# global_grad_norm  A "whole" array counts on one of the tp ranks, say on rank 0, and a copy
#                   counts nowhere. Roots come last: norms do not add up, squares do. All ranks
#                   of a group have to call all_reduce, also those that have nothing to add.
