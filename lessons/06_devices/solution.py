"""Lesson 6: the answers."""

import numpy as np


def reduce_scatter(xs):
    return np.split(sum(xs), len(xs))  # [n * c] -> n times [c]


def shift(group, x):
    before, after = (group.rank - 1) % group.size, (group.rank + 1) % group.size
    if group.size == 1:
        return x.copy()
    if (
        group.rank == 0
    ):  # one that receives first is enough: the others' sends end one after another
        received = group.recv(before)
        group.send(x, after)
    else:
        group.send(x, after)
        received = group.recv(before)
    return received


def ring_all_reduce(group, x):
    n, rank = group.size, group.rank

    def pass_on(part):
        sent = group.isend(part, (rank + 1) % n)
        received = group.recv((rank - 1) % n)
        sent.wait()
        return received

    parts = [part.copy() for part in np.array_split(x, n)]  # n times [m/n]
    for step in range(1, n):
        i = (rank - step) % n
        arrived = (i - 1) % n
        parts[arrived] = pass_on(parts[i]) + parts[arrived]
    for step in range(n - 1):
        i = (rank - step) % n
        parts[(i - 1) % n] = pass_on(parts[i])
    return np.concatenate(parts)  # [m]


def ring_seconds(op, n, size, bandwidth, latency=0.0):
    steps = (n - 1) * (2 if op == "all_reduce" else 1)
    return steps * (latency + size / n / bandwidth)
