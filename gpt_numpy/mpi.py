"""The mesh's groups over real processes, by MPI: the same programs, the same rings.

    mpiexec -n 8 python -m gpt_numpy train --mpi --dp 2 --pp 2 --tp 2 ...

The processes are on other computers if MPI spans them. Every process has one simulated device,
whose meters work as ever; only sends and receives are real. The collectives are mesh.py's rings,
so losses equal those of a simulated run with `Mesh(algorithm="ring")` to the bit, and others' to
rounding.
"""

import time
from zlib import crc32

from gpt_numpy.device import DeviceArray
from gpt_numpy.mesh import Group, Rank


def load():
    """The module mpi4py.MPI. Importing it starts MPI: done where it is asked for, nowhere else."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ValueError(f"MPI is not there ({error}): pip install mpi4py mpich") from None
    return MPI


class Send:
    """A send under way: wait() returns when its receive has begun."""

    def __init__(self, group, x, dst, tag):
        message = (True, x.numpy()) if isinstance(x, DeviceArray) else (False, x)
        self.request = group.comm.isend(message, dst, tag)
        group.device.sent[group.name] += x.nbytes

    def wait(self):
        while not self.request.test()[0]:
            receive_any()


class Receive:
    """A receive under way: wait() returns what has come."""

    def __init__(self, group, src, tag):
        self.group, self.src, self.tag, self.done = group, src, tag, False
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
        while not self.done:
            receive_any()
        return self.x


WAITING = []  # this process's receives, in the order of their calls


def receive_any():
    """Receive whatever has come.

    Whoever waits must: two who send to each other would else both wait forever.
    """
    for receive in list(WAITING):
        receive.poll()
    time.sleep(1e-5)  # processes may be more than cores


class MpiGroup(Group):
    """mesh.Group over an MPI communicator. Messages are pickled arrays."""

    def __init__(self, name, ranks, device):
        world = load().COMM_WORLD
        super().__init__(name, ranks, list(ranks).index(world.rank))
        self.device, self.comm = device, world.Create_group(world.group.Incl(ranks))

    def isend(self, x, dst, tag=None):
        return Send(self, x, self._member(dst), number(tag))

    def irecv(self, src, tag=None):
        return Receive(self, self._member(src), number(tag))


def number(tag):
    """MPI's tags are numbers, of which every MPI has 0 to 32767."""
    return crc32(str(tag).encode()) % 32768


class MpiRank(Rank):
    """mesh.Rank in a process of its own."""

    def group(self, name, ranks):
        key = name, tuple(ranks)
        if key not in self._groups:
            self._groups[key] = MpiGroup(name, ranks, self.device)
        return self._groups[key]


def rank():
    """This process's number, and how many there are."""
    world = load().COMM_WORLD
    return world.rank, world.size


def barrier():
    load().COMM_WORLD.Barrier()


def run(program, mesh, *args):
    """mesh.run in the processes that mpiexec has started.

    Returns the results by rank in process 0, and None in the others.
    """
    own, size = rank()
    if size != mesh.size:
        raise ValueError(
            f"dp x pp x tp is {mesh.size}, but MPI has {size} processes: mpiexec -n {mesh.size}"
        )
    return load().COMM_WORLD.gather(program(MpiRank(mesh, own, None), *args))
