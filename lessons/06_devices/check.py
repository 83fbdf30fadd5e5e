"""The checks of lesson 6."""

import re

import numpy as np

from gpt_numpy.mesh import CommunicationError, Mesh
from lessons.checking import SIZES, brief, on_ranks, same, unchanged


def vectors(n, m):  # -> n times [m]; two digits for each rank, so that a sum shows what is in it
    return [np.arange(1.0, m + 1) * 100**rank for rank in range(n)]


def check_parts_of_the_sum(reduce_scatter):
    for n in SIZES:
        xs = vectors(n, 3 * n)
        with unchanged(xs):
            got = reduce_scatter(xs)
        if not isinstance(got, (list, tuple)) or len(got) != n:
            raise AssertionError(
                f"reduce_scatter on {n} ranks: expected a list of {n} arrays, one part for each "
                f"rank, got {brief(got)}"
            )
        parts = np.split(sum(xs), n)
        mistakes = {
            "a part of the rank's own vector: where is the reduce?": [
                np.split(x, n)[rank] for rank, x in enumerate(xs)
            ],
            "that is the whole sum: where is the scatter?": [sum(xs)] * n,
            "this is the mean: a reduce is the sum": [part / n for part in parts],
            "that is part r + 1: rank r gets part r": parts[1:] + parts[:1],
            "that is part r - 1: rank r gets part r": parts[-1:] + parts[:-1],
        }
        same(got, parts, f"reduce_scatter on {n} ranks", mistakes, by="rank")


def check_whole_numbers_stay_whole(reduce_scatter):
    got = reduce_scatter([np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40])])
    same(got, [np.array([11, 22]), np.array([33, 44])], "of integers", by="rank")


class Only:
    """A group of which only some calls may be used."""

    def __init__(self, group, *calls):
        self.rank, self.size, self.group, self.calls = group.rank, group.size, group, calls

    def __getattr__(self, name):
        if name not in self.calls:
            known = ", ".join(self.calls)
            raise AssertionError(f"group.{name} was used: the exercise is to do it with {known}")
        return getattr(self.group, name)


class Ring(Only):
    """A network of neighbours, in which a send does not wait."""

    works = ()

    def send(self, x, dst, tag=None):
        self.works = [*self.works, self.isend(x.copy(), dst, tag)]

    def isend(self, x, dst, tag=None):
        if dst not in ((self.rank - 1) % self.size, (self.rank + 1) % self.size):
            raise AssertionError(
                f"rank {self.rank} of {self.size} sends to rank {dst}: in a ring one talks to "
                "one's neighbours only"
            )
        return self.group.isend(x, dst, tag)

    def end(self):
        for work in self.works:
            work.wait()


def on_ring(program, mesh, xs, cure):
    """on_ranks; where all ranks send, or all receive, the message says so, and the cure."""
    try:
        return on_ranks(program, mesh, xs)
    except AssertionError as error:
        waits = re.findall(r"waits for rank \d+ in (send|recv)", str(error))
        for call, idea in (
            ("send", "all send first, and send waits until the other side receives"),
            ("recv", "all receive first, and nobody has sent anything"),
        ):
            if waits == [call] * mesh.size:
                raise AssertionError(f"{error}: {idea}: {cure}") from error
        raise


def check_everyone_gets_the_one_before(shift):
    for n in (2, 3, 4):
        xs = vectors(n, 5)
        got = on_ring(
            lambda rank, x: shift(Only(rank.tp, "send", "recv"), x),
            Mesh(tp=n),
            xs,
            "one of them has to do it the other way round",
        )
        mistakes = {
            "everyone has the next one's x: which way does it go?": xs[1:] + xs[:1],
            "everyone has its own x": xs,
            "rank 0 has its own: the last one's x goes to rank 0": xs[:1] + xs[:-1],
        }
        same(got, xs[-1:] + xs[:-1], f"shift on {n} ranks", mistakes, by="rank")


def check_a_group_of_one(shift):
    idea, xs = "a group of one: return x, there is nobody to send to", vectors(1, 5)
    try:
        got = on_ranks(lambda rank, x: shift(Only(rank.tp, "send", "recv"), x), Mesh(tp=1), xs)
    except AssertionError as error:
        if isinstance(error.__cause__, CommunicationError):
            raise AssertionError(f"{idea} ({error})") from error
        raise
    same(got, xs, idea)


MESSAGES = ("send", "recv", "isend", "irecv")


def misled(xs, first, steps, passes=None, adds=False, ahead=0):
    """What a ring gives in which rank r begins with part r - first, with so many steps in its
    first half and passes in its second one, that also adds in the second one, or begins the second
    one with the part that is so far ahead of the finished one."""
    n, parts = len(xs), [np.array_split(x, len(xs)) for x in xs]
    for step in range(steps + (n - 1 if passes is None else passes)):
        second = step >= steps
        sent = [(rank - first - step + ahead * second) % n for rank in range(n)]
        arrived = [parts[rank - 1][sent[rank - 1]] for rank in range(n)]
        for rank in range(n):
            i = sent[rank - 1]
            parts[rank][i] = arrived[rank] + parts[rank][i] * (adds or not second)
    return [np.concatenate(part) for part in parts]


def sum_by_messages(ring_all_reduce, n, m):
    """Run it on n vectors [m], and refuse a wrong sum; the mesh has the meters."""
    mesh, xs = Mesh(tp=n), vectors(n, m)
    got = on_ring(
        lambda rank, x: ring_all_reduce(Only(rank.tp, *MESSAGES), x), mesh, xs, "use isend, or "
        "let one of them do it the other way round"
    )
    what = f"ring_all_reduce on {n} ranks, vectors of {m}"
    parts, missing = np.array_split(sum(xs), n), "the second half, the all-gather, is missing"
    mistakes = [
        ("elements are lost: the parts need not be equal", [sum(xs)[: m // n * n]] * n),
        ("everyone has only its own vector: has anything arrived?", xs),
        ("this is the mean: an all-reduce is the sum", [sum(xs) / n] * n),
    ]
    for first in (1, 0):  # rank r may begin with part r - 1, or with part r
        own = [parts[(rank + 1 - first) % n] for rank in range(n)]
        not_finished = [misled(xs, first, n - 1, ahead=ahead) for ahead in (-1, 1)]
        mistakes += [
            (f"one part only: {missing}", own),
            (f"one part only is complete: {missing}", misled(xs, first, n - 1, passes=0)),
            (
                "added again while the finished parts are passed on",
                misled(xs, first, n - 1, adds=True),
            ),
            *[
                (
                    "these parts were never added up: the all-gather has to begin with the part "
                    "that is finished, which arrived last",
                    value,
                )
                for value in not_finished
            ],
            (
                "one step too many: after n - 1 steps a part has been everywhere",
                misled(xs, first, n),
            ),
            (
                "one step too few: the finished parts need n - 1 steps, too",
                misled(xs, first, n - 1, passes=n - 2),
            ),
        ]
    same(got, [sum(xs)] * n, what, mistakes, by="rank")
    return mesh


def check_sum_on_every_rank(ring_all_reduce):
    for n in SIZES:
        sum_by_messages(ring_all_reduce, n, 3 * n)


def check_length_not_divisible(ring_all_reduce):
    for n, m in [(3, 4), (4, 6), (4, 3)]:
        sum_by_messages(ring_all_reduce, n, m)


def check_also_right_if_sends_do_not_wait(ring_all_reduce):
    def program(rank, x):
        ring = Ring(rank.tp, *MESSAGES)
        y = ring_all_reduce(ring, x)
        ring.end()
        return y

    for n in (2, 3, 4):
        xs = vectors(n, 2 * n)
        got = on_ranks(program, Mesh(tp=n), xs)
        same(got, [sum(xs)] * n, f"where sends do not wait, {n} ranks", by="rank")


def check_bytes_sent_by_each_rank(ring_all_reduce):
    for n in SIZES:
        m = 4 * n
        mesh = sum_by_messages(ring_all_reduce, n, m)
        sent = [device.sent["tp"] for device in mesh.devices]
        mistakes = {
            "whole vectors go around: a step sends one part": [(n - 1) * 8 * m] * n,
            "whole vectors go around, twice: a step sends one part": [2 * (n - 1) * 8 * m] * n,
        }
        what = f"bytes sent on {n} ranks, vectors of {8 * m} bytes"
        same(sent, [2 * (n - 1) * 8 * m // n] * n, what, mistakes, by="rank")


GB, LINK = 1e9, 100e9  # bytes, bytes/s


def check_all_reduce_of_a_gigabyte(ring_seconds):
    same(
        ring_seconds("all_reduce", 8, GB, LINK, 0.0),
        0.0175,
        "seconds of an all-reduce of 1 GB on 8 ranks",
        {
            "that is half of it: an all-reduce is a reduce-scatter and an all-gather": 0.00875,
            "whole vectors in each step: a step sends size/n": 0.14,
            "n steps each way: after n - 1 a part has been everywhere": 0.02,
            "that is 2 size/n: there are 2 (n - 1) such steps": 0.0025,
            "that is size/bandwidth: a rank sends (n - 1)/n of it, twice": 0.01,
        },
    )


def check_one_way_collectives_of_a_gigabyte(ring_seconds):
    for op in ("all_gather", "reduce_scatter"):
        same(
            ring_seconds(op, 8, GB, LINK, 0.0),
            0.00875,
            f"seconds of {op} of 1 GB on 8 ranks",
            {
                "n steps: after n - 1 a part has been everywhere": 0.01,
                "size is the whole vector, not what one rank puts in": 0.07,
                "that is size/n once: with n - 1 such steps, more ranks are not faster": 0.00125,
                "that is an all-reduce's time": 0.0175,
            },
        )


def check_small_messages_cost_latency(ring_seconds):
    latency = 1e-5
    for n in (8, 64, 2):
        for op, halves in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
            steps = halves * (n - 1)
            sending = steps * 8 / n / LINK
            once = "latency once instead of once a step: each of the steps costs one"
            mistakes = [
                ("the latency is forgotten: each of the steps costs one", sending),
                (once, latency + sending),
                (once, halves * latency + sending),
                (
                    "n - 1 latencies: an all-reduce has twice as many steps",
                    (n - 1) * latency + sending,
                ),
                (
                    "that is half of it: an all-reduce is a reduce-scatter and an all-gather",
                    (n - 1) * (latency + 8 / n / LINK),
                ),
                ("n latencies each way: there are n - 1 steps", halves * n * latency + sending),
                (
                    "n steps each way: there are n - 1",
                    halves * n * (latency + 8 / n / LINK),
                ),
            ]
            what = f"seconds of {op} of 8 bytes on {n} ranks with a latency of 10 microseconds"
            same(
                ring_seconds(op, n, 8.0, LINK, latency), steps * latency + sending, what, mistakes
            )


def check_one_rank_takes_no_time(ring_seconds):
    same(
        ring_seconds("all_reduce", 1, GB, LINK, 1e-5), 0.0, "seconds of an all-reduce on one rank"
    )
