"""Lesson 10: write the schedule and the step of a pipeline yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 10` says what passes.
Hints are at the end.
"""

from typing import NamedTuple

import numpy as np  # noqa: F401

TEACHES = {"one_f_one_b": "gpt_numpy.parallel.pipeline.one_f_one_b"}


class Action(NamedTuple):
    kind: str  # F or B
    micro_batch: int
    chunk: int = 0  # of a stage's chunks of the model; 1F1B has one


def bubble_fraction(pp, micro_batches, virtual_stages=1):
    """The share of a step's whole time in which a stage of a pipeline is idle.

    Idle over total (not over busy) time. Stages are equal, each has `virtual_stages` chunks of
    the model, sending takes no time; the schedule is GPipe or 1F1B, interleaved if there are
    several chunks.
    pp: stages; micro_batches: in a step -> a number from 0 to below 1

    >>> round(bubble_fraction(pp=4, micro_batches=8), 5)
    0.27273
    """
    raise NotImplementedError("idle time over the time of the whole step")


def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    """What a stage does in 1F1B, in order: a list of Actions.

    First the warm-up, as many F as stages follow (at most micro_batches); then F and B in turn,
    until every F is done; then the B that are left. Both go through the micro-batches in their
    order. stage: from 0 to pp - 1. 1F1B has one chunk a stage: if virtual_stages is not 1, raise
    a ValueError that says so, and to use interleaved.

    >>> " ".join(f"{a.kind}{a.micro_batch}" for a in one_f_one_b(0, pp=3, micro_batches=4))
    'F0 F1 F2 B0 F3 B1 B2 B3'
    >>> one_f_one_b(2, pp=3, micro_batches=1)
    [Action(kind='F', micro_batch=0, chunk=0), Action(kind='B', micro_batch=0, chunk=0)]
    """
    raise NotImplementedError("the warm-up, F and B in turn, the B that are left")


def pipeline_gradient(pp, w, xs, ts):
    """The gradient of this stage's matrix, in a pipeline of linear layers y = x @ w.

    Every rank of the group pp runs this, and has one of the matrices. The model multiplies by
    that of rank 0 first and by that of the last rank last. The loss is
    sum((y - t)**2) / 2 / total, over the outputs y of the last stage in all micro-batches;
    `total` is the number of rows of all micro-batches, which need not be equally long.

    pp: has `rank`, `size`, `send(x, dst)`, `recv(src)`, `isend`, `irecv`; send and recv wait for
    the other side. w: [d_in, d_out], d_out is the next stage's d_in. xs: m arrays [n_i, d_in] on
    the first stage, a list of m times None on the others. ts: m arrays [n_i, d_out] on the last
    stage, m times None on the others. -> [d_in, d_out]

    Stages send each other activations and their gradients, nothing else and nothing twice. Each
    array that is sent has the rows of one micro-batch: so the next stage works on it while this
    one has the next micro-batch. Any schedule will do; all forward passes before all backward
    passes is the simplest.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> w = [np.array([[2.0]]), np.array([[3.0]])]
    >>> xs, ts = [np.array([[x]]) for x in (1.0, 2.0)], [np.array([[t]]) for t in (5.0, 10.0)]
    >>> xs, ts = [xs, [None, None]], [[None, None], ts]
    >>> run(lambda rank: pipeline_gradient(rank.pp, *[a[rank.rank] for a in (w, xs, ts)]).tolist(),
    ...     Mesh(pp=2))
    [[[7.5]], [[5.0]]]
    """
    raise NotImplementedError("receive, multiply, keep, send; then the same backwards")


# Hints
#
# bubble_fraction    Draw it for 4 stages and 2 micro-batches. How many passes does a stage miss,
#                    how many does it make? With v chunks, count passes through a chunk.
# one_f_one_b        Make the list of all F and the list of all B first, and let n be the warm-up.
#                    Which F are left after it, and with which B are they paired?
# pipeline_gradient  The forward pass must keep each x, for the gradient of w is x.T @ dy, and what
#                    goes back to the stage before is dy @ w.T. On the last stage dy is what the
#                    loss says: (y - t) / total. Over the micro-batches, gradients add up.
