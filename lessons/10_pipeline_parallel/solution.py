"""Lesson 10: the answers."""

from typing import NamedTuple


class Action(NamedTuple):
    kind: str
    micro_batch: int
    chunk: int = 0


def bubble_fraction(pp, micro_batches, virtual_stages=1):
    return (pp - 1) / (micro_batches * virtual_stages + pp - 1)


def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    if virtual_stages != 1:
        raise ValueError(f"virtual_stages = {virtual_stages}: 1f1b has one chunk; use interleaved")
    forward = [Action("F", i) for i in range(micro_batches)]
    backward = [Action("B", i) for i in range(micro_batches)]
    warm_up = min(micro_batches, pp - 1 - stage)
    in_turn = [action for pair in zip(forward[warm_up:], backward) for action in pair]
    return forward[:warm_up] + in_turn + backward[micro_batches - warm_up :]


def pipeline_gradient(pp, w, xs, ts):
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    held, dys = [], []
    for x, t in zip(xs, ts):
        x = x if first else pp.recv(pp.rank - 1)  # [n_i, d_in]
        y = x @ w  # [n_i, d_in] @ [d_in, d_out] -> [n_i, d_out]
        held.append(x)
        if last:
            dys.append((y - t) / sum(len(t) for t in ts))  # [n_i, d_out]
        else:
            pp.send(y, pp.rank + 1)
    gradient = None
    for i, x in enumerate(held):
        dy = dys[i] if last else pp.recv(pp.rank + 1)  # [n_i, d_out]
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)  # [n_i, d_in]
        part = x.T @ dy  # [d_in, n_i] @ [n_i, d_out] -> [d_in, d_out]
        gradient = part if gradient is None else gradient + part
    return gradient
