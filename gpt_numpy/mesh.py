"""Many ranks in one process: the same program runs on every rank of a mesh of simulated devices.

    def program(rank, x):                   # what every rank runs
        part = np.array_split(x, rank.tp.size)[rank.tp.rank]
        return rank.tp.all_reduce(rank.device.put(part.sum()))

>>> mesh = Mesh(dp=1, pp=1, tp=4)
>>> run(lambda rank: rank.tp.all_reduce(rank.device.put(np.ones(2))).numpy().tolist(), mesh)
[[4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]

A rank has `.rank` (its number in the mesh), `.device`, and groups: `.dp`, `.pp`, `.tp` (the ranks
that differ from it in that coordinate alone), `.world` (all), and `.group(name, ranks)` for any
other. A group has `.name`, `.size`, `.ranks` (their numbers in the mesh) and `.rank`, this rank's
index among them. src and dst in its calls are such indexes, not numbers in the mesh.

Calls have torch.distributed's names, but return new arrays instead of filling given ones; in a
group of one they return x itself. They take device arrays, with numbers or without, and NumPy
arrays; a rank gets back the sort that it gave. With async_op=True, and by isend and irecv, a rank
gets a `Work` at once and the result from its wait(); until then it must not change x.

    all_reduce(x, op="sum")      the sum (max, min) over all ranks
    all_gather(x, axis=0)        all ranks' x, joined; they may differ in length along axis
    reduce_scatter(x, axis=0)    this rank's part of the sum, cut as np.array_split cuts
    all_to_all(x, axis=0)        x is cut into parts, rank i gets everyone's part i, joined (along
                                 `join`, or axis again); a list of n arrays gives a list of n
    broadcast(x, src=0)          src's x; the others may give anything
    send(x, dst), recv(src)      a send waits for its receive, as NCCL's does. A `tag`, if both
                                 give one, must be the same
    barrier()

Each exists twice: in a naive form and as a ring of isend and irecv, in which every rank passes on
to the next; `Mesh(algorithm="ring")` takes the second. Both send the same bytes: in all_reduce,
of S bytes on each rank, 2(n-1)/n S per rank; in reduce_scatter and all_gather (whole buffer S)
and all_to_all (each rank's x is S) (n-1)/n S. If n does not divide S, the parts differ, and so do
the ranks; they are metered to the byte.

Ranks take turns: one runs until it waits for another or ends. So a run is deterministic, and may
print. Calls of a group must come in the same order on all ranks, with the same options, shapes and
dtypes (except as said above). If not, or if all ranks wait for each other, `run` raises one
error that says which rank waits for whom, in which call, at which line.

Time: a communication starts when its inputs are ready and all its ranks have called it, their
compute streams having come that far, and its own stream ("comm"; "send" and "recv") is free on
all of them; it ends on all at once. wait() holds up the compute stream until then. In the groups
named in `Mesh(overlap={"dp"})` the compute streams do not take part: the result's `.ready` alone
says who must wait.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections import defaultdict, deque
from contextvars import copy_context
from pathlib import Path

import numpy as np

from gpt_numpy.device import Device, DeviceArray, Storage, cut, what
from gpt_numpy.gpt2 import identity

REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class CommunicationError(RuntimeError):
    """Ranks do not agree in what they call, or a message has no receiver."""


class DeadlockError(CommunicationError):
    """Ranks wait for each other, or for one that has ended."""


# The naive form: all ranks' arrays are there. Each function returns a list of results by rank.

def total(xs, op):
    return functools.reduce(REDUCE[op], xs) if xs[0].has_numbers else xs[0]


def all_reduce(xs, op):
    return [total(xs, op)] * len(xs)


def all_gather(xs, axis):
    return [np.concatenate(xs, axis)] * len(xs)


def reduce_scatter(xs, op, axis):
    return np.array_split(total(xs, op), len(xs), axis)


def all_to_all(xs):
    return [list(parts) for parts in zip(*xs)]


def broadcast(xs, src):
    return [xs[src]] * len(xs)


def barrier(xs):
    return [None] * len(xs)


NAIVE = {f.__name__: f for f in (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast,
                                 barrier)}


# The ring: every rank sends to the next one and receives from the one before.

def pass_on(group, x, tag):
    """Send x to the next rank; what the rank before sends."""
    sent = group.isend(x, (group.rank + 1) % group.size, tag)
    received = group.irecv((group.rank - 1) % group.size, tag)
    sent.wait()
    return received.wait()


def ring_sum(group, parts, op, tag):
    """The sum over all ranks of their part number `rank`, in n - 1 steps."""
    part = parts[group.rank - 1]
    for step in range(2, group.size + 1):  # the part that has come this far is one further back
        part = REDUCE[op](pass_on(group, part, tag), parts[group.rank - step])
    return part


def ring_gather(group, part, tag):
    """The list of every rank's part, in n - 1 steps."""
    parts = {group.rank: part}
    for step in range(1, group.size):
        part = parts[(group.rank - step) % group.size] = pass_on(group, part, tag)
    return [parts[i] for i in range(group.size)]


def ring_all_reduce(group, x, op):
    parts = np.array_split(x.reshape(-1), group.size)
    parts = ring_gather(group, ring_sum(group, parts, op, "all_reduce"), "all_reduce")
    return np.concatenate(parts).reshape(x.shape)


def ring_all_gather(group, x, axis):
    return np.concatenate(ring_gather(group, x, "all_gather"), axis)


def ring_reduce_scatter(group, x, op, axis):
    return ring_sum(group, np.array_split(x, group.size, axis), op, "reduce_scatter")


def ring_all_to_all(group, parts):
    n, r = group.size, group.rank
    sent = [group.isend(parts[(r + i) % n], (r + i) % n, "all_to_all") for i in range(1, n)]
    received = {(r - i) % n: group.irecv((r - i) % n, "all_to_all") for i in range(1, n)}
    for work in sent:
        work.wait()
    return [parts[r].copy() if i == r else received[i].wait() for i in range(n)]


def ring_broadcast(group, x, src):
    if group.rank != src:
        x = group.recv((group.rank - 1) % group.size, "broadcast")
    if (group.rank + 1) % group.size != src:
        group.send(x, (group.rank + 1) % group.size, "broadcast")
    return x.copy() if group.rank == src else x


def ring_barrier(group, x):
    ring_gather(group, np.empty(0), "barrier")


RING = {f.__name__[5:]: f for f in (ring_all_reduce, ring_all_gather, ring_reduce_scatter,
                                    ring_all_to_all, ring_broadcast, ring_barrier)}


class Done:
    """A communication that is over: wait() returns its result."""

    def __init__(self, result):
        self.result = result

    def wait(self):
        return self.result


class Group:
    """Ranks that talk to each other, seen from one of them. A child provides isend and irecv."""

    def __init__(self, name, ranks, rank):
        self.name, self.ranks, self.rank, self.size = name, tuple(ranks), rank, len(ranks)

    def __repr__(self):
        return f"group {self.name} of ranks {list(self.ranks)}"

    def all_reduce(self, x, op="sum", async_op=False):
        return self._collective("all_reduce", x, async_op, op=_known(op))

    def all_gather(self, x, axis=0, async_op=False):
        return self._collective("all_gather", x, async_op, axis=_axis(x, axis))

    def reduce_scatter(self, x, op="sum", axis=0, async_op=False):
        axis = _axis(x, axis)
        return self._collective("reduce_scatter", x, async_op, op=_known(op), axis=axis)

    def all_to_all(self, x, axis=0, join=None, async_op=False):
        if isinstance(x, (list, tuple)):
            if len(x) != self.size:
                raise ValueError(f"all_to_all: {len(x)} arrays for {self.size} ranks")
            return self._collective("all_to_all", list(x), async_op)
        parts, join = np.array_split(x, self.size, axis), axis if join is None else join
        return self._collective("all_to_all", parts, async_op, lambda y: np.concatenate(y, join))

    def broadcast(self, x, src=0, async_op=False):
        return self._collective("broadcast", x, async_op, src=self._member(src))

    def barrier(self):
        self._collective("barrier", None, False)

    def send(self, x, dst, tag=None):
        self.isend(x, dst, tag).wait()

    def recv(self, src, tag=None):
        return self.irecv(src, tag).wait()

    def _member(self, index):
        if not 0 <= index < self.size:
            raise ValueError(f"{self} has no member {index}")
        return index

    def _collective(self, call, x, async_op, then=identity, **options):
        result = then(RING[call](self, x, **options) if self.size > 1 else x)
        return Done(result) if async_op else result


def _axis(x, axis):
    if not -np.ndim(x) <= axis < np.ndim(x):
        raise ValueError(f"axis {axis} of an array with {np.ndim(x)} axes")
    return axis


def _known(op):
    if op not in REDUCE:
        raise ValueError(f"op is {op!r}: expected one of {', '.join(REDUCE)}")
    return op


# Simulated ranks: what a call is while it waits, and what happens when all have come.

class Work:
    """A call of one rank, perhaps still under way: wait() returns its result."""

    def __init__(self, group, call, x, then=identity, peer=None, tag=None, **options):
        self.group, self.call, self.x, self.then = group, call, x, then
        self.peer, self.tag, self.options = peer, tag, options
        self.done, self.result, self.end = False, None, 0.0
        self.number = group.ranks[group.rank]  # the caller's, in the mesh
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            said, frame = frame.f_code.co_name, frame.f_back
        self.said, self.file, self.line = said, frame.f_code.co_filename, frame.f_lineno
        if group.device._fused is not None:
            raise CommunicationError(f"{self}: a communication cannot be part of a fused kernel")
        self.moment = 0.0 if group.overlap else group.device.streams["compute"]

    def __str__(self):
        parts = [self.said]
        if self.x is not None:
            parts.append(f"{len(self.x)} arrays" if isinstance(self.x, list) else what(self.x))
        if self.tag is not None:
            parts.append(repr(self.tag))
        if self.peer is not None:
            way = "to" if self.call == "send" else "from"
            parts.append(f"{way} rank {self.group.ranks[self.peer]}")
        where = ", ".join([self.group.name, *(f"{k} {v}" for k, v in self.options.items())])
        return f"{' '.join(parts)} ({where}) at {Path(self.file).name}:{self.line}"

    def agreement(self):
        """What must be the same on all ranks of a collective."""
        if self.call == "all_to_all":  # parts may differ in shape
            return self.call, self.options, [part.dtype for part in self.x]
        if self.call not in ("all_reduce", "reduce_scatter", "all_gather"):
            return self.call, self.options
        shape = list(self.x.shape)
        if self.call == "all_gather":
            shape[self.options["axis"]] = "any"
        return self.call, self.options, shape, self.x.dtype

    def wait(self):
        if not self.done:
            self.group.ranks_in_turn.block(self)
        streams = self.group.device.streams
        if not self.group.overlap and self.end > streams["compute"]:
            streams["compute"] = self.end
        self.result, self.then = self.then(self.result), identity
        return self.result

    def finish(self, result, sent, received, like):
        """Take a result from the wire, as the sort of array that `like` is."""
        device = self.group.device
        device.sent[self.group.name] += sent
        device.received[self.group.name] += received
        self.result = _deliver(result, device, like, self.end)
        self.done, self.x = True, None


WIRE = Device("wire")  # arrays under way are here; nobody reads its meters


def _on_wire(x):
    """The same numbers as an array on the wire, not copied."""
    if isinstance(x, list):
        return [_on_wire(part) for part in x]
    if isinstance(x, DeviceArray):
        return DeviceArray(x._raw, Storage(WIRE, 0, x.has_numbers), x.dtype)
    return x if x is None else DeviceArray(x, Storage(WIRE, 0, True), x.dtype)


def _deliver(y, device, like, ready):
    if isinstance(y, list):
        return [_deliver(part, device, like[0], ready) for part in y]
    if isinstance(y, DeviceArray) and isinstance(like, DeviceArray):
        y = device._copy_of(y)
        y._storage.ready = ready
        return y
    return None if y is None else y._raw.copy()


def traffic(call, xs, **options):
    """Bytes that each rank sends and receives in the ring form, and bytes of the whole buffer.

    >>> traffic("all_reduce", [np.ones(10, np.int8)] * 4, op="sum")
    ([14, 15, 16, 15], [15, 14, 15, 16], 10)
    """
    n = len(xs)
    if call == "barrier":
        return [0] * n, [0] * n, 0
    if call == "broadcast":
        whole = xs[options["src"]].nbytes
        sent = [whole] * n
        sent[options["src"] - 1] = 0
        return sent, sent[-1:] + sent[:-1], whole
    if call == "all_to_all":
        sizes = np.array([[part.nbytes for part in x] for x in xs])  # [from, to]
        whole, kept = int(sizes.sum(axis=1).max()), sizes.diagonal()
        return (sizes.sum(1) - kept).tolist(), (sizes.sum(0) - kept).tolist(), whole
    if call == "all_gather":
        parts = [x.nbytes for x in xs]
    else:
        m = xs[0].size if call == "all_reduce" else xs[0].shape[options["axis"]]
        parts = [size * xs[0].nbytes // max(m, 1) for size in cut(m, n)]
    # Scattering, all parts but one's own go out, and all but the previous rank's come in; then,
    # gathering, all but the next rank's go out, and all but one's own come in.
    whole, scatter, gather = sum(parts), call != "all_gather", call != "reduce_scatter"
    sent = [scatter * (whole - parts[i]) + gather * (whole - parts[(i + 1) % n]) for i in range(n)]
    received = [scatter * (whole - parts[i - 1]) + gather * (whole - parts[i]) for i in range(n)]
    return sent, received, whole


def _take_time(works, call, nbytes, ranks, streams):
    """All works begin together, when everything is ready, and end together."""
    cost, start = works[0].group.device.cost, 0.0
    if cost is None:
        return
    for work, stream in zip(works, streams):
        arrays = work.x if isinstance(work.x, list) else [work.x]
        start = max([start, work.moment, work.group.device.streams[stream]]
                    + [x.ready for x in arrays if isinstance(x, DeviceArray)])
    seconds = cost.collective(call, len(ranks), nbytes, ranks)
    for work, stream in zip(works, streams):
        name = f"{call} {work.group.name}"
        work.end = work.group.device.occupy(stream, name, start, seconds)


def _settle(xs, works):
    """Carry out a collective on all ranks' arrays in its naive form, and finish these works."""
    call, options, group = works[0].call, works[0].options, works[0].group
    results = NAIVE[call]([_on_wire(x) for x in xs], **options)
    sent, received, whole = traffic(call, xs, **options)
    _take_time(works, call, whole, group.ranks, ["comm"] * len(works))
    for work in works:
        i = work.group.rank
        work.finish(results[i], sent[i], received[i], xs[options.get("src", i)])


class SimulatedGroup(Group):
    """A group on simulated devices; the ranks of one run share its `ranks_in_turn`."""

    def __init__(self, name, ranks, rank, device, ranks_in_turn, algorithm, overlap):
        super().__init__(name, ranks, rank)
        self.device, self.ranks_in_turn = device, ranks_in_turn
        self.algorithm, self.overlap, self.calls = algorithm, overlap, 0

    def isend(self, x, dst, tag=None):
        x, dst = self._array(x), self._member(dst)
        return self.ranks_in_turn.message(Work(self, "send", x, peer=dst, tag=tag))

    def irecv(self, src, tag=None):
        src = self._member(src)
        return self.ranks_in_turn.message(Work(self, "recv", None, peer=src, tag=tag))

    def _array(self, x):
        if isinstance(x, list):
            return [self._array(part) for part in x]
        if isinstance(x, DeviceArray) and x.device is not self.device:
            raise ValueError(f"{x!r} was given to a group on {self.device}: say "
                             "x.to_device(rank.device)")
        return x if x is None or isinstance(x, DeviceArray) else np.asarray(x)

    def _collective(self, call, x, async_op, then=identity, **options):
        if self.size == 1:
            return super()._collective(call, x, async_op, then, **options)
        work = Work(self, call, self._array(x), then, **options)
        self.calls += 1
        self._meet(work)
        if self.algorithm == "ring":
            return super()._collective(call, work.x, async_op, then, **options)
        return work if async_op else work.wait()

    def _meet(self, work):
        self.ranks_in_turn.meet(work)


class StandIn(SimulatedGroup):
    """A group whose other ranks are not there: all do what this one does, without numbers.

    It returns what they would, meters this rank's bytes and takes the time. No send and receive.

    >>> gpu = Device(0)
    >>> dp = StandIn("dp", range(1024), 0, gpu)
    >>> dp.reduce_scatter(gpu.empty(4096, "fp32")), gpu.sent["dp"]
    (DeviceArray([4] float32 on device 0, shape only), 16368)
    """

    def __init__(self, name, ranks, rank, device, overlap=False):
        super().__init__(name, ranks, rank, device, None, "naive", overlap)

    def _meet(self, work):
        _settle([work.x] * self.size, [work])


class Mesh:
    """dp * pp * tp ranks in a grid, arange(n).reshape(dp, pp, tp): tp's ranks are neighbours.

    >>> Mesh(dp=2, pp=2, tp=2).along(5, "pp")
    [5, 7]
    """

    def __init__(self, dp=1, pp=1, tp=1, cost=None, algorithm="naive", overlap=()):
        if min(dp, pp, tp) < 1 or algorithm not in ("naive", "ring"):
            raise ValueError(f"a mesh of {dp} x {pp} x {tp} ranks, {algorithm!r}: sizes have to "
                             "be 1 or more, the algorithm naive or ring")
        self.axes = ("dp", "pp", "tp")
        self.size = dp * pp * tp
        self.grid = np.arange(self.size).reshape(dp, pp, tp)
        self.devices = [Device(i, cost) for i in range(self.size)]
        overlap = [overlap] if isinstance(overlap, str) else overlap
        self.algorithm, self.overlap = algorithm, frozenset(overlap)

    def coordinates(self, rank):
        """{"dp": ..., "pp": ..., "tp": ...} of a rank."""
        return dict(zip(self.axes, map(int, np.unravel_index(rank, self.grid.shape))))

    def along(self, rank, *axes):
        """The ranks that differ from a rank in these axes alone."""
        place = [slice(None) if axis in axes else i for axis, i in self.coordinates(rank).items()]
        return self.grid[tuple(place)].ravel().tolist()


class Rank:
    """What a program sees of the mesh: its own rank's number, device and groups."""

    def __init__(self, mesh, number, ranks_in_turn):
        self.mesh, self.rank, self.device = mesh, number, mesh.devices[number]
        self._ranks_in_turn, self._groups = ranks_in_turn, {}
        self.world = self.group("world", range(mesh.size))
        self.dp, self.pp, self.tp = [self.group(a, mesh.along(number, a)) for a in mesh.axes]

    def __str__(self):
        place = ", ".join(f"{k} {v}" for k, v in self.mesh.coordinates(self.rank).items())
        return f"rank {self.rank} ({place})"

    def group(self, name, ranks):
        """A group of any ranks, this one among them; all must say the same name and ranks."""
        key = name, tuple(ranks)
        if key not in self._groups:
            others = set(key[1]) - set(range(self.mesh.size))
            if others or len(set(key[1])) < len(key[1]) or self.rank not in key[1]:
                raise ValueError(f"{self} asks for a group {name!r} of {list(ranks)}: they must "
                                 f"differ, be 0 to {self.mesh.size - 1}, and it among them")
            self._groups[key] = self.new_group(*key)
        return self._groups[key]

    def new_group(self, name, ranks):
        return SimulatedGroup(name, ranks, ranks.index(self.rank), self.device,
                              self._ranks_in_turn, self.mesh.algorithm, name in self.mesh.overlap)


def run(program, mesh, *args):
    """Run program(rank, *args) on every rank of a mesh -> the list of results by rank.

    If it raises on one rank, all end, and `run` raises that error with a note that names the rank.
    """
    return RanksInTurn(mesh).run(program, args)


class Stop(BaseException):
    """Ends a rank's program after another has failed."""


class RanksInTurn:
    """Threads that take turns: one rank runs, until it waits for another one or ends.

    A rank's lock is the baton: it runs when someone has released it for the rank.
    """

    def __init__(self, mesh):
        self.ranks = [Rank(mesh, i, self) for i in range(mesh.size)]
        self.locks = [threading.Lock() for _ in self.ranks]
        self.over = threading.Lock()
        for lock in [*self.locks, self.over]:
            lock.acquire()
        self.can_run = deque(range(mesh.size))
        self.running, self.blocked, self.ended = None, {}, set()
        self.results, self.failure, self.stopped = [None] * mesh.size, None, False
        self.meetings, self.messages = {}, defaultdict(deque)

    def run(self, program, args):
        threads = [threading.Thread(target=self._rank, args=(i, copy_context(), program, args),
                                    name=f"rank {i}", daemon=True) for i in range(len(self.ranks))]
        try:
            for thread in threads:
                thread.start()
            self._next()
            while not self.over.acquire(timeout=0.1):  # wakes up now and then for Ctrl-C
                pass
        except BaseException:  # Ctrl-C: a rank in the midst of computing has to be told
            self.stopped = True
            if self.running is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(threads[self.running].ident), ctypes.py_object(Stop))
            raise
        finally:
            self.stopped = True
            for thread, lock in zip(threads, self.locks):
                if lock.locked():
                    lock.release()
                if thread.ident is not None:
                    thread.join()
        if self.failure is not None:
            error, number = self.failure
            if number is not None:
                _note(error, f"on {self.ranks[number]}")
            raise error
        return self.results

    def _rank(self, number, context, program, args):
        self.locks[number].acquire()
        try:
            if self.stopped:
                return
            self.results[number] = context.run(program, self.ranks[number], *args)
            self.ended.add(number)
            self._next()
        except Stop:
            pass
        except BaseException as error:
            self._fail(error, number)

    def _fail(self, error, number=None):
        if self.failure is None and not self.stopped:
            self.failure = error, number
            self.over.release()

    def _next(self):
        """Pass the baton on."""
        if self.can_run:
            self.running = self.can_run.popleft()
            self.locks[self.running].release()
        elif self.blocked:
            works = [work for _, work in sorted(self.blocked.items())]
            self._fail(DeadlockError("no rank can go on" + self._list(works)))
        else:
            works = [work for meeting in self.meetings.values() for work in meeting.values()]
            works += [work for queue in self.messages.values() for work in queue]
            if works:
                self._fail(CommunicationError("the ranks have ended, but not what they began"
                                              + self._list(works)))
            else:
                self.over.release()

    def _list(self, works):
        return ":" + "".join(f"\n  rank {work.number} waits for {self._awaited(work)} in {work}"
                             for work in works)

    def _awaited(self, work):
        if work.peer is not None:
            missing = [work.peer]
        else:
            meeting = next(m for m in self.meetings.values() if work in m.values())
            missing = [i for i in range(work.group.size) if i not in meeting]
        numbers = [work.group.ranks[i] for i in missing]
        return ", ".join(f"rank {n}{' (ended)' if n in self.ended else ''}" for n in numbers)

    def block(self, work):
        """Let others run until a work is done."""
        self.blocked[work.number] = work
        self._next()
        self.locks[work.number].acquire()
        if self.stopped:
            raise Stop

    def _done(self, works):
        for work in works:
            if self.blocked.get(work.number) is work:
                del self.blocked[work.number]
                self.can_run.append(work.number)

    def meet(self, work):
        """Add a rank's call to a group's collective, and carry it out when all ranks have come."""
        if self.stopped:
            raise Stop
        group = work.group
        key = group.name, group.ranks, group.calls
        meeting = self.meetings.setdefault(key, {})
        first = next(iter(meeting.values()), work)
        if first.agreement() != work.agreement():
            raise CommunicationError(
                f"rank {first.number} calls {first}, but rank {work.number} calls {work}: all "
                "ranks of a group must make the same calls in the same order")
        meeting[group.rank] = work
        if len(meeting) == group.size:
            del self.meetings[key]
            if group.algorithm == "naive":
                works = [meeting[i] for i in range(group.size)]
                _settle([work.x for work in works], works)
                self._done(works)

    def message(self, work):
        """Match a send with its receive, or leave it for the other rank to find."""
        if self.stopped:
            raise Stop
        group = work.group
        if work.peer == group.rank:
            raise CommunicationError(f"rank {work.number} talks to itself: {work}")
        ends = (group.rank, work.peer) if work.call == "send" else (work.peer, group.rank)
        queue = self.messages[group.name, group.ranks, ends]
        if not queue or queue[0].call == work.call:
            queue.append(work)
            return work
        other = queue.popleft()
        send, recv = (work, other) if work.call == "send" else (other, work)
        if None not in (send.tag, recv.tag) and send.tag != recv.tag:
            raise CommunicationError(f"rank {send.number} calls {send}, but rank {recv.number} "
                                     f"calls {recv}: the tags differ")
        x = send.x
        _take_time([send, recv], "send", x.nbytes, (send.number, recv.number), ["send", "recv"])
        recv.finish(_on_wire(x), 0, x.nbytes, x)
        send.finish(None, x.nbytes, 0, x)
        self._done([send, recv])
        return work


def _note(error, note):
    """Add a line to an error's message; Python 3.10 has no notes."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.args = (f"{error}\n{note}", *error.args[1:])
