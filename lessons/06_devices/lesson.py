# %% [markdown]
# # 6. Devices, groups and what it costs to talk
#
# *30 minutes. Explains [device.py](../../gpt_numpy/device.py) (`Device`, `DeviceArray`) and
# [mesh.py](../../gpt_numpy/mesh.py) (`Mesh`, `run`, the groups).*
#
# After this lesson you can put arrays on simulated devices and read their meters; write one
# program that runs on many ranks; say what each collective does and how many bytes it sends;
# predict how long it takes; and read the message of a deadlock.
#
# A model that does not fit on one GPU is split over many. Each has its own memory, and a number
# in one is of no use to another until it has been sent. Everything in the lessons that follow
# comes from this. So first: what is a device?

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import numpy as np

from gpt_numpy.device import Device
from gpt_numpy.flops import ring_seconds
from gpt_numpy.hardware import gpu
from gpt_numpy.mesh import Mesh, run
from lessons import bars, show_svg

# %% [markdown]
# ## A device has a memory of its own
#
# `put` copies an array into a device's memory. What comes back is used like a NumPy array: the
# operators and the functions are NumPy's, and so are the results, to the bit. To look at the
# numbers one has to ask for them.

# %%
first, second = Device(0), Device(1)
x = first.put(np.arange(6.0).reshape(2, 3))  # [2, 3]
w = first.put(np.ones((3, 4)))  # [3, 4]
y = x @ w  # [2, 3] @ [3, 4] -> [2, 4]
print(y)
print(y.numpy())

# %% [markdown]
# A device refuses to compute with another one's arrays. A real GPU does so too, if one is lucky;
# the message says what would help.

# %%
v = second.put(np.ones((4, 2)))  # [4, 2]
try:
    y @ v
except ValueError as error:
    print(error)

# %% [markdown]
# ## Its meters
#
# A device counts what happens on it. A product of `[m, k]` and `[k, n]` is `m * n * k`
# multiplications and as many additions: `2mnk` FLOPs. Sending is counted in bytes, and so is
# memory: what is held now, and what was held at most.

# %%
print("FLOPs of the product:", first.matmul_flops, "= 2 *", 2 * 4 * 3)
print("held:", first.held, "bytes =", x.nbytes, "(x) +", w.nbytes, "(w) +", y.nbytes, "(y)")
z = y.to_device(second)
print("sent by device 0:", dict(first.sent), " received by device 1:", dict(second.received))

# %% [markdown]
# Memory is held as long as an array that needs it is alive. A view needs its whole original, and
# costs nothing more; that is why a single row can keep a large matrix in memory.

# %%
row = w[0]  # [4], a view
print("a view more: ", first.held)
del w, x, y
print("w is deleted:", first.held, "bytes are held, by a view of", row.nbytes)
del row
print("its view too:", first.held, "  at most it was", first.peak)

# %% [markdown]
# ## Shapes without numbers
#
# What a device meters does not depend on the numbers. So an array may have a shape and a dtype
# but no numbers at all, and everything but the arithmetic still happens. This is the largest
# product in a block of GPT-3, for one sequence:

# %%
big = Device("big")
x = big.empty((2048, 12288), "bf16")  # [n, d]
w = big.empty((12288, 4 * 12288), "bf16")  # [d, 4d]
print(x @ w)
print(f"{big.matmul_flops / 1e12:.2f} TFLOPs, {big.peak / 1e9:.2f} GB at most")

# %% [markdown]
# ## Many ranks, one program
#
# Programs for many GPUs are not written as one program for each. All run *the same* program, and
# each knows its number, its rank. `run(program, mesh)` does this in one process: ranks take
# turns, one runs until it has to wait for another. So the order of what they print is the same
# each time.

# %%
def hello(rank):
    print(f"I am {rank}")
    return rank.rank ** 2


print(run(hello, Mesh(dp=1, pp=2, tp=2)))

# %% [markdown]
# Ranks stand in a grid, `dp x pp x tp`: copies that share the batch, stages that share the
# layers, and parts of each matrix. A *group* is the ranks that differ in one coordinate alone.
# Neighbours in `tp` have consecutive numbers, since they talk most and should sit in one node: a
# machine with, say, eight GPUs joined by fast links (NVLink). Between nodes the network is slower.

# %%
mesh = Mesh(dp=2, pp=2, tp=2)
for axis in ("dp", "pp", "tp"):
    print(axis, sorted({tuple(mesh.along(i, axis)) for i in range(mesh.size)}))

# %% [markdown]
# ## The collectives
#
# A group's members talk in *collectives*, calls that all of them make. Four make up nearly all of
# parallel training. Here rank `r` of three begins with `[10r, 10r + 1, 10r + 2]`:

# %%
def talk(rank, call):
    x = rank.device.put(10.0 * rank.rank + np.arange(3))  # [3]
    return getattr(rank.tp, call)(x).numpy().astype(int).tolist()


for call in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
    print(f"{call:15}", *run(talk, Mesh(tp=3), call), sep="  ")

# %% [markdown]
# - **all-reduce**: everyone has the sum.
# - **all-gather**: everyone has everything.
# - **reduce-scatter**: rank `r` has part `r` of the sum.
# - **all-to-all**: rank `r` has everyone's part `r`.
#
# Note what reduce-scatter and all-gather make together: parts of the sum, then everyone's parts.
# That is an all-reduce, and it is how an all-reduce is done.
#
# ## A ring
#
# How are `n` vectors summed, if each rank can only send to the next one? Passing whole vectors
# around would send each of them `n - 1` times. A ring sends only parts. Each vector is cut into
# `n` of them. In every step each rank sends one part to the next rank, which adds its own to it.
# After `n - 1` steps every rank has one part that has been everywhere. Rank `r` begins with part
# `r - 1`, so that the one that arrives last, complete, is part `r`, which reduce-scatter promises;
# rank 0 begins with `parts[-1]`: negative indices wrap around a list, as the ring does.

# %%
def reduce_scatter(rank, x, say=None):  # [m] -> [m/n]
    tp, n = rank.tp, rank.tp.size
    parts = np.array_split(x, n)  # n times [m/n]
    part = parts[tp.rank - 1]
    for step in range(2, n + 1):
        sent = tp.isend(part, (tp.rank + 1) % n)  # does not wait
        part = tp.recv((tp.rank - 1) % n) + parts[tp.rank - step]
        sent.wait()
        if say:
            say(rank.rank, step - 1, part.numpy().astype(int).tolist())
    return part


table = {}
xs = [np.array([1.0, 2, 3, 4]) * 10**r for r in range(4)]  # four ranks, a digit each


def note(number, step, part):
    table[step, number] = part


run(lambda rank: reduce_scatter(rank, rank.device.put(xs[rank.rank]), note), Mesh(tp=4))
print("step  " + "".join(f"rank {r:<8}" for r in range(4)))
for step in (1, 2, 3):
    print(f"{step:4}  " + "".join(f"{table[step, r]!s:13}" for r in range(4)).rstrip())

# %% [markdown]
# Each digit is a rank that has been added. The last line is complete, and rank `r` has part `r`.
# In a second round of `n - 1` steps the finished parts travel on, without adding: the all-gather.
# Every rank has then sent `2 (n - 1) / n` times its vector, which is less than twice, however
# many ranks there are. The package's own ring sends just that:

# %%
for n in (2, 4, 8, 64):
    mesh = Mesh(tp=n, algorithm="ring")
    run(lambda rank: rank.tp.all_reduce(rank.device.put(np.ones(6400))), mesh)
    sent, formula = mesh.devices[0].sent["tp"], 2 * (n - 1) / n * 8 * 6400
    print(f"{n:3} ranks: a vector of {8 * 6400} bytes, sent {sent}, by the formula {formula:.0f}")

# %% [markdown]
# ## What it costs
#
# The simplest model of a message has two numbers: it takes `alpha` seconds however small it is,
# and then its bytes take their time by the bandwidth. A ring of `n` ranks has `n - 1` steps for
# an all-gather or a reduce-scatter of `S` bytes, and twice as many for an all-reduce, each with
# `S / n` bytes:
#
# ```text
# steps * (alpha + S / n / bandwidth)
# ```
#
# `S` is always the whole buffer: what an all-gather *ends* with, and what a reduce-scatter
# *begins* with.

# %%
a100 = gpu("a100")
alpha, bandwidth = a100.nvlink_latency, a100.nvlink
print(f"alpha {1e6 * alpha:.2f} microseconds, bandwidth {bandwidth / 1e9:.0f} GB/s")
rows = {}
for size in (1e4, 1e5, 1e6, 1e7):
    seconds = ring_seconds("all_reduce", 8, size, bandwidth, alpha)
    latency = ring_seconds("all_reduce", 8, 0, bandwidth, alpha)
    rows[f"{size / 1e6:g} MB"] = {"latency": 1e6 * latency, "bytes": 1e6 * (seconds - latency)}
    share = latency / seconds
    print(f"{size / 1e6:5g} MB: {1e6 * seconds:6.1f} microseconds, {share:4.0%} of them latency")
show_svg(bars("An all-reduce on 8 A100 with NVLink", rows, "microseconds"), "all-reduce time")

# %% [markdown]
# Small messages cost what empty ones do. That is why gradients are packed into buckets (lesson 7)
# and why two all-reduces in every layer stay inside a node (lesson 8): across nodes a link is
# slower in both numbers.

# %%
links = {"NVLink": (a100.nvlink, a100.nvlink_latency), "network": (a100.nic, a100.nic_latency)}
for name, (bandwidth, alpha) in links.items():
    seconds = ring_seconds("all_reduce", 8, 50e6, bandwidth, alpha)
    link = f"alpha {1e6 * alpha:5.2f} microseconds, {bandwidth / 1e9:3.0f} GB/s"
    print(f"{name:8} {link}: 50 MB over 8 ranks in {1e3 * seconds:.2f} ms")

# %% [markdown]
# ## A deadlock, read aloud
#
# `send` waits until the other side receives. Two ranks want to swap, and both are polite enough
# to send first:

# %%
def swap(rank):
    other = 1 - rank.rank
    rank.tp.send(rank.device.put(np.ones(2)), other)
    return rank.tp.recv(other)


try:
    run(swap, Mesh(tp=2))
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# Read it aloud: *rank 0 waits for rank 1 in `send`; rank 1 waits for rank 0 in `send`.* Neither
# will ever come to its `recv`. On real GPUs nothing is printed at all; the job just stands still,
# and some minutes later a timer ends it. The cure is to send without waiting (`isend`), receive,
# and only then wait.

# %%
def swap(rank):
    other = 1 - rank.rank
    sent = rank.tp.isend(rank.device.put(np.full(2, rank.rank)), other)
    received = rank.tp.recv(other)
    sent.wait()
    return received.numpy().tolist()


print(run(swap, Mesh(tp=2)))

# %% [markdown]
# The other way to get stuck is to disagree. All ranks of a group have to make the same calls in
# the same order:

# %%
def disagree(rank):
    x = rank.device.put(np.ones(4))
    return rank.tp.all_reduce(x) if rank.rank < 2 else rank.tp.all_gather(x)


try:
    run(disagree, Mesh(tp=3))
except RuntimeError as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. Four ranks call `all_reduce` on `np.ones(10, np.int8)`, and 10 does not divide by four. Do
#    all of them send the same number of bytes? (`mesh.devices[i].sent`)
# 2. In `swap`, rank 0 sends first and rank 1 receives first, without any `isend`. Does it stand
#    still?
# 3. From which size on does an all-reduce over 8 A100 spend more time on bytes than on latency?
#    And over 64? (`ring_seconds`)
