"""The mesh's groups over real processes, by MPI: the same programs, the same rings.

    mpiexec -n 8 python -m gpt_numpy train --mpi --dp 2 --pp 2 --tp 2 ...

It runs on other computers, too, if MPI spans them. Every process has one simulated device, whose
meters work as ever; only sends and receives are real. The collectives are mesh.py's rings, so
losses equal those of a simulated run with `Mesh(algorithm="ring")` to the bit, and others' to
rounding. Arrays need numbers.

Nobody here sees all ranks: what `mesh.run` reports at once as a mismatch or a deadlock is, as on
GPUs, a wait without end, which PATIENCE ends. Try a program on a simulated mesh first.
"""

import sys
import time
import traceback
from zlib import crc32

import numpy as np

from gpt_numpy.device import DeviceArray
from gpt_numpy.mesh import CommunicationError, Group, Rank


def load():
    """The module mpi4py.MPI. Importing it starts MPI: done where it is asked for, nowhere else."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ValueError(f"MPI is not there ({error}): pip install mpi4py mpich") from None
    return MPI


class Send:
    """A send under way: wait() returns when x may change; a small message is on its way then."""

    def __init__(self, group, x, dst, tag):
        message = (True, x.numpy()) if isinstance(x, DeviceArray) else (False, np.asarray(x))
        self.what = f"send to rank {group.ranks[dst]} ({group.name})"
        self.request = group.comm.isend(message, dst, number(tag))
        group.device.sent[group.name] += message[1].nbytes

    def wait(self):
        receive_until(lambda: self.request.test()[0], self.what)


class Receive:
    """A receive under way: wait() returns what has come."""

    def __init__(self, group, src, tag):
        self.group, self.src, self.done = group, src, False
        self.tag = load().ANY_TAG if tag is None else number(tag)
        WAITING.append(self)

    def poll(self):
        """Take the message if it is there."""
        message = self.group.comm.improbe(self.src, self.tag)
        if message is not None:
            WAITING.remove(self)
            on_device, x = message.recv()
            self.group.device.received[self.group.name] += x.nbytes
            self.x, self.done = self.group.device.put(x) if on_device else x, True

    def wait(self):
        what = f"receive from rank {self.group.ranks[self.src]} ({self.group.name})"
        receive_until(lambda: self.done, what)
        return self.x


WAITING = []  # this process's receives, in the order of their calls
PATIENCE = 600.0  # seconds after which a wait is given up


def receive_until(done, what):
    """Receive whatever comes, until done(): two who send to each other would else both wait.

    Of several receives from one source, the first gets what comes first.
    """
    start = time.monotonic()
    while not done():
        asked = set()
        for receive in list(WAITING):
            source = receive.group.name, receive.group.ranks, receive.src
            if source not in asked:
                asked.add(source)
                receive.poll()
        if time.monotonic() - start > PATIENCE:
            raise CommunicationError(f"no end of a {what} after {PATIENCE:.0f} s")
        time.sleep(1e-5)  # processes may be more than cores


class MpiGroup(Group):
    """mesh.Group over an MPI communicator. Messages are pickled arrays."""

    def __init__(self, name, ranks, device):
        world = load().COMM_WORLD
        super().__init__(name, ranks, list(ranks).index(world.rank))
        self.device, self.comm = device, world.Create_group(world.group.Incl(ranks))

    def isend(self, x, dst, tag=None):
        return Send(self, x, self._member(dst), tag)

    def irecv(self, src, tag=None):
        return Receive(self, self._member(src), tag)


def number(tag):
    """MPI's tags are numbers, of which every MPI has 0 to 32767."""
    return crc32(str(tag).encode()) % 32768


class MpiRank(Rank):
    """mesh.Rank in a process of its own."""

    def new_group(self, name, ranks):
        return MpiGroup(name, ranks, self.device)


def rank():
    """This process's number, and how many there are."""
    world = load().COMM_WORLD
    return world.rank, world.size


def barrier():
    load().COMM_WORLD.Barrier()


def check(n_ranks):
    """Refuse a layout of another number of ranks than mpiexec has started."""
    size = rank()[1]
    if size != n_ranks:
        raise ValueError(
            f"dp x pp x tp is {n_ranks}, but MPI has {size} processes: mpiexec -n {n_ranks}"
        )


def run(program, mesh, *args):
    """mesh.run in the processes that mpiexec has started.

    Returns the results by rank in process 0, and None in the others. If the program raises in one
    process, that one says so and ends all: the others may wait for it.
    """
    check(mesh.size)
    world = load().COMM_WORLD
    own = MpiRank(mesh, world.rank, None)
    try:
        result = program(own, *args)
    except BaseException as error:
        if isinstance(error, (ValueError, OSError, CommunicationError)):
            print(f"{own}: {error}", file=sys.stderr, flush=True)
        else:
            traceback.print_exc()
        world.Abort(1)
        raise
    return world.gather(result)
