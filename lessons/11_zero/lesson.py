# %% [markdown]
# # 11. ZeRO: who holds what
#
# *40 minutes. Explains [zero.py](../../gpt_numpy/parallel/zero.py) (`shard`, `reduce_scatter`,
# `all_gather`, `gathered`), `clip` in [optim.py](../../gpt_numpy/optim.py), `state_bytes` in
# [flops.py](../../gpt_numpy/flops.py), and `step` in
# [model.py](../../gpt_numpy/parallel/model.py).*
#
# After this lesson you can say what the 16 or 18 bytes of a parameter in training are, and which
# rank holds them under ZeRO's three stages; write the step of stage 1 from a reduce-scatter and an
# all-gather; tell what each stage sends; and compute the norm of a gradient that no rank has.
#
# Data parallelism (lesson 7) splits the batch, and nothing else. Every rank has all the weights,
# all their gradients, and all of Adam's state: the same numbers, once for each rank. ZeRO, *zero
# redundancy optimizer* ([arXiv 1910.02054](https://arxiv.org/abs/1910.02054)), stops holding them
# more than once.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

from dataclasses import replace

import numpy as np

from gpt_numpy.checkpoint import flatten
from gpt_numpy.cluster import Setup, simulate
from gpt_numpy.flops import model, n_params, published_runs, state_bytes
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.optim import AdamW, clip
from gpt_numpy.parallel import zero
from gpt_numpy.parallel.model import Layout, Model
from gpt_numpy.train import OneDevice, Settings, init_params
from lessons import bars, show_svg

# %% [markdown]
# ## Sixteen bytes
#
# A parameter is two bytes in bf16. In training it becomes sixteen (section 3.1 of the paper):
#
# | what | format | bytes |
# | --- | --- | --- |
# | the weight that the matmuls use | bf16 | 2 |
# | its gradient | bf16 | 2 |
# | the weight that is updated (*master weight*) | fp32 | 4 |
# | Adam's mean of the gradient | fp32 | 4 |
# | Adam's mean of its square | fp32 | 4 |
#
# Why a weight twice? Because an update is small. A bf16 has 8 bits to say a number with, so near
# 1 the next number is 1/128 away, and a step of 1/1000 rounds to nothing. NumPy has no bf16, but
# a float16 shows the same, a little later:

# %%
w16, w32 = np.float16(1), np.float32(1)
for _ in range(100):
    w16 += np.float16(2e-4)
    w32 += np.float32(2e-4)
print(f"1 and 100 steps of 0.0002: in float16 {w16}, in float32 {w32:.4f}")

# %% [markdown]
# Where gradients are added up over many micro-batches, the same happens to them, so Megatron-LM
# and others add them in fp32: 4 bytes instead of 2, and 18 in all. Both figures are in use; ask
# which. The last three rows of the table, 12 bytes, are the *optimizer's state*; nothing but the
# update needs them. On one GPU of 80 GB, without any activation yet:

# %%
for name in ("gpt2-xl", "megatron-3.6b", "megatron-7.5b", "gpt3-175b"):
    n = n_params(model(name))
    sizes = [state_bytes(n, grad_bytes=g) / 1e9 for g in (2, 4)]
    print(f"{name:13} {n / 1e9:5.1f} billion parameters: {2 * n / 1e9:5.1f} GB in bf16, "
          f"{sizes[0]:6.1f} GB at 16 bytes, {sizes[1]:6.1f} at 18")  # fmt: skip

# %% [markdown]
# ## Three stages
#
# ZeRO splits these bytes over the `dp` ranks, the largest part first: stage 1 the optimizer's 12,
# stage 2 also the gradient, stage 3 also the weight. The paper's own example (figure 1) is a model
# of 7.5 billion parameters on 64 GPUs:

# %%
rows, splits = {}, {"weight": 3, "gradient": 2, "optimizer": 1}  # from which stage on
for stage in range(4):
    size = {"weight": 2, "gradient": 2, "optimizer": 12}
    parts = {k: 7.5 * b / (64 if stage >= splits[k] else 1) for k, b in size.items()}
    rows[f"stage {stage}"] = parts
    total = state_bytes(7.5e9, dp=64, zero=stage) / 1e9
    print(f"stage {stage}: {total:7.3f} GB, {1 - total / 120:6.1%} saved:",
          ", ".join(f"{k} {b:.3f}" for k, b in parts.items()))  # fmt: skip
show_svg(bars("7.5 billion parameters, a GPU of 64", rows, "GB"), "bytes by stage")

# %% [markdown]
# Stage 1 alone saves most of it. With ever more ranks, what is left of stage 1 approaches 4 bytes
# a parameter (6 with fp32 gradients), of stage 2 two bytes, and of stage 3 nothing.
#
# ## Which rank holds which numbers
#
# An array has any shape, and its size need not divide by the number of ranks. So it is flattened,
# padded with zeros and cut; rank `r` has row `r` of `[dp, k]`. Ten numbers on four ranks:

# %%
def my_shard(rank):
    w = rank.device.put(np.arange(1.0, 11).reshape(2, 5))  # [2, 5]
    return zero.shard(w, rank.dp).numpy().astype(int).tolist()  # [10] -> [12] -> [4, 3] -> [3]


print(run(my_shard, Mesh(dp=4)))
print("in each shard", zero.shard_size(10, dp=4), "numbers, of them padding:", zero.padding(10, 4))

# %% [markdown]
# Padding costs a few zeros. It can be more than that: with five numbers and a total that must
# divide by 8 (some kernels want that), the third rank has one zero and the fourth nothing but
# zeros. A program that expects padding on the last rank alone goes wrong there:

# %%
size, padded = zero.shard_size(5, dp=4, alignment=8), zero.padding(5, dp=4, alignment=8)
print("in each shard", size, "numbers, of them padding:", padded)

# %% [markdown]
# ## Stage 1: the same step, a quarter each
#
# Adam moves each number by itself: what happens to one weight does not depend on any other. So
# each rank can move its shard, and hold Adam's state for that shard alone. Then:
#
# 1. a **reduce-scatter** of the gradients gives each rank its shard of the sum;
# 2. the rank's optimizer moves its shard of the weights;
# 3. an **all-gather** of the shards gives all ranks all the new weights.
#
# With four ranks, whose gradients differ (each has seen a part of the batch):

# %%
rng = np.random.default_rng(0)
w = {"w": rng.standard_normal((3, 7)), "b": rng.standard_normal(5)}
parts = [{k: rng.standard_normal(x.shape) for k, x in w.items()} for _ in range(4)]  # of a sum
shapes = {name: x.shape for name, x in w.items()}


def size_of(optimizer):
    return sum(x.size for means in (optimizer.m, optimizer.v) for x in means.values())


def zero_1(rank):
    weights = {k: rank.device.put(x) for k, x in w.items()}
    grads = {k: rank.device.put(g) for k, g in parts[rank.rank].items()}
    mine = {k: zero.shard(x, rank.dp) for k, x in weights.items()}  # [k] each
    optimizer = AdamW(mine, decay={"w"})
    optimizer.step(mine, zero.reduce_scatter(grads, rank.dp)(), lr=0.1)
    new = zero.all_gather(mine, shapes, rank.dp)  # whole again
    return {k: x.numpy() for k, x in new.items()}, size_of(optimizer)


# %% [markdown]
# And the same in plain data parallelism:

# %%
def plain(rank):
    weights = {k: rank.device.put(x) for k, x in w.items()}
    grads = {k: rank.dp.all_reduce(rank.device.put(g)) for k, g in parts[rank.rank].items()}
    optimizer = AdamW(weights)
    optimizer.step(weights, grads, lr=0.1)
    return {k: x.numpy() for k, x in weights.items()}, size_of(optimizer)


# %% [markdown]
# Side by side, with the meters:

# %%
meshes = {"all-reduce": Mesh(dp=4), "ZeRO-1": Mesh(dp=4)}
one, split = run(plain, meshes["all-reduce"]), run(zero_1, meshes["ZeRO-1"])
same = all(np.allclose(one[0][0][k], new[k], rtol=1e-12) for new, _ in split for k in w)
print("the same weights on all ranks:", same)
for (name, mesh), ranks in zip(meshes.items(), (one, split)):
    sent = [device.sent["dp"] for device in mesh.devices]
    print(f"{name:10}: Adam's state has {ranks[0][1]} numbers on each rank; bytes sent {sent}")
for name, x in w.items():
    print(f"{name} has {x.size} numbers, with padding {4 * zero.shard_size(x.size, dp=4)}")

# %% [markdown]
# A fraction of the memory, and nothing more to send: an all-reduce *is* a reduce-scatter and an
# all-gather (lesson 6). Stage 1 only has the optimizer between the two. The few bytes more are
# padding, which is a large part of so small arrays.
#
# One thing got lost. `w` is now a flat `[k]`, like `b`, and whoever decides by dimensions which
# weights decay decays nothing. That is why `AdamW` is told names (`decay=`).
#
# ## A real model, and its meters
#
# `Model` does the same for GPT-2, in buckets of a layer. Here are all stages on four ranks. We
# use one precision, float64 with 8 bytes, so it is not 2 + 2 + 12 but 8 + 8 + 16: weight,
# gradient, Adam's two means. Who holds what does not depend on that.

# %%
settings = Settings(
    n_vocab=280, n_embd=32, n_head=4, n_layer=6, n_ctx=16, batch=8, micro_batch=1, dtype="float64"
)
text = np.random.default_rng(0).integers(0, 280, (8, 17))  # [b, n_ctx + 1]
tokens, targets = text[:, :-1], text[:, 1:]  # [b, n_ctx] each


def weights(settings=settings):
    return init_params(settings.config, np.float64, seed=1)


# %%
class Watched(Model):
    """Notes the most bytes of gradients that it ever holds."""

    most = 0

    def labelled(self, grads):
        grads = super().labelled(grads)
        self.most = max(self.most, self.rank.device.held_by_kind["gradients"])
        return grads


def train(layout, steps=2, micro_batch=1):
    """Of rank 0: losses and norms by step, bytes that it held, bytes that it sent."""

    def program(rank):
        trained = Watched(rank, weights(), replace(settings, micro_batch=micro_batch), layout)
        figures = [trained.step(tokens, targets, lr=1e-2) for _ in range(steps)]
        now = rank.device.held_by_kind
        held = {k: now[k] for k in ("weights", "gradients", "optimizer")}
        held["gradients"] = trained.most
        return figures, held, rank.device.sent["dp"]

    return run(program, Mesh(layout.dp, layout.pp, layout.tp))[0]


# %%
alone = OneDevice(weights(), settings)
print("one device", *["{:.9f} {:.9f}".format(*alone.step(tokens, targets, 1e-2)) for _ in (1, 2)])
held = {}
for stage in range(4):
    figures, held[f"stage {stage}"], _ = train(Layout(dp=4, zero=stage))
    print(f"stage {stage}   ", *["{:.9f} {:.9f}".format(*figure) for figure in figures])

# %% [markdown]
# Losses and norms are one device's. Memory of rank 0, and the gradients when they were most, as
# parts of `Psi`, the paper's letter for the parameters (here: their bytes):

# %%
psi = 8 * sum(x.size for x in flatten(weights()).values())
for name, kinds in held.items():
    print(f"{name}:", ", ".join(f"{k} {b / psi:.3f} Psi" for k, b in kinds.items()))
rows = {name: {k: b / 1e3 for k, b in kinds.items()} for name, kinds in held.items()}
show_svg(bars("A rank of four", rows, "kB"), "memory of rank 0")

# %% [markdown]
# Weights and optimizer are as the table says. Gradients are more than it says: those of the layer
# at work are whole, and those of the layer before, whose reduction goes on meanwhile. That is two
# layers' share, not the model's: the more layers, the less.
#
# ## What it sends
#
# An all-reduce sends `2 Psi (n - 1) / n`. Stage 1 sends as much. Stage 2 cannot wait until all
# micro-batches are done, for then it would hold whole gradients: it has a reduce-scatter for each
# micro-batch. Stage 3 holds no weights, so they are gathered before each layer, forward and
# backward, and let go after it:

# %%
each = psi * (4 - 1) / 4  # what a reduce-scatter or an all-gather of everything sends
for stage in range(4):
    for micro_batch, m in ((2, 1), (1, 2)):  # a rank has 2 of the 8 sequences
        sent = train(Layout(dp=4, zero=stage), 1, micro_batch)[2] / each
        print(f"stage {stage}, {m} micro-batch{'es' * (m > 1)}: {sent:.2f} Psi")
tied = 8 * settings.n_vocab * settings.n_embd / psi
print(f"the tied embedding is {tied:.2f} Psi, so 3 + 2 * {tied:.2f} = {3 + 2 * tied:.2f}")

# %% [markdown]
# The paper (section 7) counts one micro-batch: 2, 2, 2 and 3 `Psi`, times `(n - 1) / n`. The
# meters agree, but for padding and one thing at stage 3: the tied embedding is gathered for both
# of its layers, in both directions. With `m` micro-batches it is `m + 1` for stage 2 and `m`
# times as much for stage 3. That is why with a pipeline, which lives on many micro-batches
# (lesson 10), one usually takes stage 1 and no more.
#
# Stage 3 itself is a layer around a layer, `gathered`: fill in the weights, run, empty
# them. Our layers (lesson 5) look a parameter up when they use it and not before, so that is all
# that is needed. A trace of one training step:

# %%
def trace(layer, what, log):
    """The layer as stage 3 runs it, saying what happens."""

    def gather(p):
        log.append(f"gather {what}")

    def release(p):
        log.append(f"drop {what}")

    return zero.gathered(layer, gather, release)


class Traced(Model):
    def replace_layers(self):
        replaced = super().replace_layers()
        self.log = []
        kinds = zip(replaced, replaced._fields)
        return type(replaced)(*[trace(layer, kind, self.log) for layer, kind in kinds])


def program(rank):
    small = replace(settings, n_layer=2, micro_batch=4)  # one micro-batch on each rank
    trained = Traced(rank, weights(small), small, Layout(dp=2, zero=3))
    trained.step(tokens, targets, lr=1e-2)
    return trained.log


log = run(program, Mesh(dp=2))[0]
for i in range(0, len(log), 2):
    print(f"{log[i]}, {'forward' if i < len(log) / 2 else 'backward'}, {log[i + 1]}")

# %% [markdown]
# ## The norm of a gradient that nobody has
#
# Gradients are clipped: if the norm of all of them together is above `max_norm`, all are scaled
# down by the same factor. But no rank has all. Three ideas, on shards `[3, 0]` and `[0, 4]`, whose
# norm is 5:

# %%
shards = [np.array([3.0, 0.0]), np.array([0.0, 4.0])]


def norms(rank):
    g = rank.device.put(shards[rank.rank])  # [2]
    square = (g * g).sum()  # [] {partial: dp}
    local = np.sqrt(square)
    return [
        float(x)
        for x in (local, rank.dp.all_reduce(local), np.sqrt(rank.dp.all_reduce(square)))
    ]


for rank, (local, added, right) in enumerate(run(norms, Mesh(dp=2))):
    print(f"rank {rank}: its own norm {local:g}, sum of norms {added:g}, root of the sum of "
          f"squares {right:g}")  # fmt: skip

# %% [markdown]
# With its own norm each rank scales by another factor, and the direction of the step changes. Sums
# of norms scale by too much. Squares add up. `clip` leaves adding them over ranks to whoever
# knows where the parts are, by its `total`:

# %%
def clipped(rank):
    grads = {"w": rank.device.put(shards[rank.rank])}  # [2]
    norm = clip(grads, 1.0, lambda squares: rank.dp.all_reduce(sum(squares.values())))
    return float(norm), grads["w"].numpy().tolist()


print(run(clipped, Mesh(dp=2)))

# %% [markdown]
# In three dimensions each gradient must be counted exactly once: over `dp` only if ZeRO has split
# it; over `tp` only if it is split there, for a layer norm's gain is whole on every rank; over
# `pp` always, but the tied embedding on one of its two stages. `Model.total` says just that, in
# ten lines. Let us forget the conditions, or the sum, on 2 x 2 x 2 ranks. Which norms come out?

# %%
class EveryRankCounts(Model):
    def total(self, squares):
        return self.rank.world.all_reduce(sum(squares.values()))


class OwnNorm(Model):
    def total(self, squares):
        return sum(squares.values())


def norms_of(kind, layout):
    def program(rank):
        return kind(rank, weights(), settings, layout).step(tokens, targets, lr=1e-2)[1]

    return [f"{norm:.6f}" for norm in dict.fromkeys(run(program, Mesh(*layout[:3])))]


print("one device:        ", f"{OneDevice(weights(), settings).step(tokens, targets, 0)[1]:.6f}")
for stage in (0, 1):
    layout = Layout(2, 2, 2, zero=stage)
    for kind in (Model, EveryRankCounts, OwnNorm):
        print(f"stage {stage} {kind.__name__:15}:", *norms_of(kind, layout))

# %% [markdown]
# Adam hardly shows such a fault: it divides the gradient by its own size, so a wrong factor
# cancels. The loss looks fine. Compare norms, before you compare weights.
#
# ## At scale
#
# GPT-3 13B in data parallel alone: 64 A100 of 80 GB, four micro-batches of a sequence each, blocks
# recomputed, no pipeline and no tensor parallelism. The simulated cluster (lesson 13) adds up
# fp32 gradients, so it is 18 bytes:

# %%
rows = {}
for stage in range(4):
    layout = Layout(dp=64, zero=stage, recompute="full")
    setup = Setup(model("gpt3-13b"), layout, 256, flash=2)
    plain = simulate(setup)
    hidden = simulate(setup._replace(overlap=frozenset(["dp"])))
    rows[f"stage {stage}"] = {k: b / 1e9 for k, b in plain.fullest.items()}
    print(f"stage {stage}: {sum(plain.fullest.values()) / 1e9:6.1f} GB,",
          f"{'fits' if plain.fits else 'does not fit'}; {plain.seconds:.2f} s per step,",
          f"{hidden.seconds:.2f} s if it computes meanwhile")  # fmt: skip
show_svg(bars("GPT-3 13B, a GPU of 64", rows, "GB"), "13B on 64 GPUs")

# %% [markdown]
# Stages 2 and 3 bring into memory what stage 1 cannot, and pay with traffic for every micro-batch;
# layers this large give enough to compute meanwhile, if one overlaps them. (Stage 0 is slower
# than stage 1 because each GPU updates all 13 billion weights itself.)
#
# Where tensor and pipeline parallelism have made the model small already, stage 1 is what is left
# to do. With 18 bytes, in MegaScale's largest layout
# ([arXiv 2402.15627](https://arxiv.org/abs/2402.15627), Table 2):

# %%
row = next(row for row in published_runs() if row.id == "ms_t2_MS_6144_12288")
own = n_params(row.config) / (row.tp * row.pp)
for stage in (0, 1):
    size = state_bytes(own, row.dp, stage, grad_bytes=4)
    print(f"dp {row.dp} x pp {row.pp} x tp {row.tp}, stage {stage}: {own / 1e9:.2f} billion "
          f"parameters in a GPU, {size / 1e9:.1f} GB")  # fmt: skip

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. From how many ranks on does stage 1 hold less than 5 bytes a parameter, of 16? Does it ever
#    hold less than 4? (`state_bytes(1, dp, 1)`)
# 2. Five numbers on four ranks: how much padding has each shard, and why has one of them two zeros
#    and nothing else? (`zero.padding(5, 4)`)
# 3. Stage 3 gathers each layer's weights twice. With full recomputation the forward pass of a
#    block runs once more: are they gathered three times? (`recompute="full"` in a `Layout`, and
#    `sent_bytes`)
