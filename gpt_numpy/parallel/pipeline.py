"""Pipeline parallelism: every rank of the group `pp` has some of the layers.

Schedules are data; one executor plays them. A schedule is the list of a stage's actions:
("F", micro_batch, chunk) runs a chunk of the model forward, ("B", ...) backward. A stage has one
chunk of consecutive layers, or with `virtual_stages` several: chunk c of stage r is number
c * pp + r in the model's order. Between an F and its B a chunk's activations are held: they are
in flight.

    gpipe        all F, then all B: every micro-batch in flight (arXiv 1811.06965)
    1f1b         B as early as it can: at most pp in flight, in the same time (arXiv 2006.09503)
    interleaved  several chunks a stage: 1/virtual_stages of the bubble (arXiv 2104.04473,
                 section 2.2)
"""

from typing import NamedTuple

import numpy as np


class Action(NamedTuple):
    kind: str  # F or B
    micro_batch: int
    chunk: int = 0


def gpipe(stage, pp, micro_batches, virtual_stages=1):
    """
    >>> " ".join(f"{a.kind}{a.micro_batch}" for a in gpipe(0, pp=2, micro_batches=3))
    'F0 F1 F2 B0 B1 B2'
    """
    one_chunk("gpipe", virtual_stages)
    return [Action(kind, i) for kind in "FB" for i in range(micro_batches)]


def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    """Warm up with as many F as stages follow, then F and B in turn, then the B that are left.

    >>> " ".join(f"{a.kind}{a.micro_batch}" for a in one_f_one_b(0, pp=3, micro_batches=4))
    'F0 F1 F2 B0 F3 B1 B2 B3'
    """
    one_chunk("1f1b", virtual_stages)
    forward = [Action("F", i) for i in range(micro_batches)]
    backward = [Action("B", i) for i in range(micro_batches)]
    return in_turn(forward, backward, min(micro_batches, pp - stage - 1))


def interleaved(stage, pp, micro_batches, virtual_stages):
    """1F1B over chunks: pp micro-batches run through the first chunk, then the next, and so on.

    >>> actions = interleaved(1, pp=2, micro_batches=2, virtual_stages=2)
    >>> " ".join(f"{a.kind}{a.micro_batch}.{a.chunk}" for a in actions)
    'F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0'
    """
    if micro_batches % pp:
        raise ValueError(f"interleaved: {micro_batches} micro-batches do not divide by pp = {pp}")
    forward = [
        Action("F", group + i, chunk)
        for group in range(0, micro_batches, pp)
        for chunk in range(virtual_stages)
        for i in range(pp)
    ]
    backward = [Action("B", i, virtual_stages - 1 - chunk) for _, i, chunk in forward]
    # (virtual_stages - 1) * pp F lead to the last chunk. Each stage further from the end has two
    # more: one while its output goes on to the end, one while the gradient comes back
    warm_up = 2 * (pp - stage - 1) + (virtual_stages - 1) * pp
    return in_turn(forward, backward, min(len(forward), warm_up))


def one_chunk(name, virtual_stages):
    if virtual_stages != 1:
        raise ValueError(
            f"virtual_stages = {virtual_stages}: {name} has one chunk a stage; use interleaved"
        )


def in_turn(forward, backward, warm_up):
    """`warm_up` times F, then F and B in turn, then what is left of B."""
    turns = [action for pair in zip(forward[warm_up:], backward) for action in pair]
    return forward[:warm_up] + turns + backward[len(forward) - warm_up :]


SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b, "interleaved": interleaved}


def schedule(name, stage, pp, micro_batches, virtual_stages=1):
    """A stage's actions by a schedule's name. One stage alone has each F followed by its B.

    >>> [f"{a.kind}{a.micro_batch}" for a in schedule("gpipe", 0, pp=1, micro_batches=2)]
    ['F0', 'B0', 'F1', 'B1']
    """
    if pp == virtual_stages == 1:
        return [Action(kind, i) for i in range(micro_batches) for kind in "FB"]
    return SCHEDULES[name](stage, pp, micro_batches, virtual_stages)


def place(n_layer, pp, virtual_stages=1):
    """The numbers of the layers in each chunk, in the model's order: pp * virtual_stages lists.

    If they cannot be equal, the first ones have a layer more: the last one has the head as well.

    >>> place(5, pp=2)
    [[0, 1, 2], [3, 4]]
    """
    chunks = pp * virtual_stages
    if n_layer < chunks:
        raise ValueError(
            f"{n_layer} layers are too few for {chunks} chunks (pp = {pp}, virtual_stages = "
            f"{virtual_stages}): each needs one at least"
        )
    return [part.tolist() for part in np.array_split(np.arange(n_layer), chunks)]


def play(actions, pp, virtual_stages, forward):
    """Play a schedule on one stage -> the losses (on the last one), most chunks ever in flight.

    forward(micro_batch, chunk, x) runs a chunk on x, [n, d] or None in the first one, and returns
    its output and `back`. Sends do not wait for their receives: neighbours that send to each other
    at once would wait forever.
    """
    last_chunk = virtual_stages - 1
    before, after = (pp.rank - 1) % pp.size, (pp.rank + 1) % pp.size
    in_flight, peak, sends, losses = {}, 0, [], []
    for kind, micro_batch, chunk in actions:
        first = pp.rank == 0 and chunk == 0
        last = pp.rank == pp.size - 1 and chunk == last_chunk
        if kind == "F":
            x = None if first else pp.recv(before, tag="forward")  # [n, d]
            y, in_flight[micro_batch, chunk] = forward(micro_batch, chunk, x)
            peak = max(peak, len(in_flight))
            if last:
                losses.append(y)
            else:
                sends.append(pp.isend(y, after, tag="forward"))
            del x, y
        else:
            back = in_flight.pop((micro_batch, chunk))
            dx, _ = back() if last else back(pp.recv(after, tag="backward"))  # [n, d]
            if not first:
                sends.append(pp.isend(dx, before, tag="backward"))
            del back, dx
    for send in sends:
        send.wait()
    return losses, peak
