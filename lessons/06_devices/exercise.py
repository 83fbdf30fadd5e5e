"""Lesson 6: write the collectives yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 6` says what passes.
Hints are at the end.
"""

import numpy as np  # noqa: F401


def reduce_scatter(xs):
    """Rank r gets part r of the sum over ranks, given everyone's arrays at once.

    xs: a list of n arrays [n * c], one of each rank -> a list of n arrays [c]

    >>> xs = [np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40])]
    >>> [part.tolist() for part in reduce_scatter(xs)]
    [[11, 22], [33, 44]]
    """
    raise NotImplementedError("sum all arrays, and give each rank its own part")


def shift(group, x):
    """Every rank's x goes to the next rank, and the last one's to rank 0.

    Only by `send` and `recv`, which wait for the other side.
    group: has `rank`, `size`, `send(x, dst)` and `recv(src)`; x: [m] -> [m], what the rank before
    had. A group of one gets its own x.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> run(lambda rank: shift(rank.tp, np.array([rank.rank])).tolist(), Mesh(tp=3))
    [[2], [0], [1]]
    """
    raise NotImplementedError("send to the next rank, receive from the one before")


def ring_all_reduce(group, x):
    """The sum of all ranks' x, by messages to the next rank that hold one part of x each.

    n - 1 steps in which parts are added up, and n - 1 in which the finished parts are passed on.
    group: has `rank`, `size`, `send`, `recv`, `isend`, `irecv`; x: [m] -> [m]. Parts are cut as
    np.array_split cuts, so m need not divide by n. x stays as it is.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> xs = [np.array([1, 2, 3]), np.array([10, 20, 30]), np.array([100, 200, 300])]
    >>> run(lambda rank: ring_all_reduce(rank.tp, xs[rank.rank]).tolist(), Mesh(tp=3))
    [[111, 222, 333], [111, 222, 333], [111, 222, 333]]
    """
    raise NotImplementedError("pass parts around the ring, twice")


def ring_seconds(op, n, size, bandwidth, latency=0.0):
    """How long a ring collective over n ranks takes.

    Each step sends size/n bytes and costs one latency.
    op: "all_reduce", "all_gather" or "reduce_scatter"; size: bytes of the whole vector (of an
    all-gather: of the gathered one); bandwidth: bytes/s of a link; latency: s -> s

    >>> ring_seconds("all_reduce", 8, 1e9, 100e9)
    0.0175
    """
    raise NotImplementedError("count the steps, then what each of them costs")


# Hints
#
# reduce_scatter   np.split(total, n) cuts an array into n equal parts.
# shift            If all send first, all wait. What if one of them receives first?
# ring_all_reduce  Rank r first sends part r - 1; step by step, the part that arrives is one
#                  further back. Which part is complete on rank r when the first half is over? The
#                  second half begins with it. If you use isend, wait for it in the end.
# ring_seconds     How many steps has an all-gather? An all-reduce is a reduce-scatter and an
#                  all-gather.
