# %% [markdown]
# # 7. Data parallelism: everyone has the model, and a part of the batch
#
# *30 minutes. Explains [data.py](../../gpt_numpy/parallel/data.py) (`pack`, `all_reduce`,
# `accumulate`, `Gradients`, `reduced`), `step` and `reduce` in
# [model.py](../../gpt_numpy/parallel/model.py), and `clip` in
# [optim.py](../../gpt_numpy/optim.py).*
#
# After this lesson you can split a batch over ranks so that their gradients add up to one
# device's, however unevenly its tokens are spread; pack gradients into buckets and reduce them
# while the backward pass goes on; say when gradients of micro-batches are reduced; and clip where
# it has to be done.
#
# This is the oldest way to use many devices, and the simplest. Every rank has all the weights.
# Each takes other sequences, computes its gradient, and the gradients are added up. So all ranks
# take the same step, and have the same weights again. What can go wrong with a sum?

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import numpy as np

from gpt_numpy import layers, timeline
from gpt_numpy.checkpoint import flatten, gpt2_shapes, unflatten
from gpt_numpy.cost import Cost
from gpt_numpy.device import Device
from gpt_numpy.flops import model, ring_bytes, ring_seconds
from gpt_numpy.hardware import gpu
from gpt_numpy.mesh import Mesh, StandIn, run
from gpt_numpy.optim import clip
from gpt_numpy.parallel import data
from gpt_numpy.parallel.model import Layout, Model
from gpt_numpy.train import OneDevice, Settings, init_params
from lessons import bars, show_svg

# %% [markdown]
# ## A loss is a sum, so a gradient is one
#
# Take a small model and a batch of eight sequences. The loss is the mean over its tokens: a sum,
# divided by a count. The sum may be taken in parts. Here are two halves of the batch, as two ranks
# have them, each divided by the count of tokens of the *whole* batch:

# %%
settings = Settings(
    n_vocab=280, n_embd=16, n_head=2, n_layer=2, n_ctx=8, batch=8, dtype="float64", max_norm=0
)
text = np.random.default_rng(0).integers(0, 280, (8, 9))  # [b, n_ctx + 1]
tokens, targets = text[:, :-1], text[:, 1:]  # [b, n_ctx] each
params = init_params(settings.config, np.float64, seed=1)


def gradient(tokens, targets, total):
    """The loss and the gradient of all weights, as a flat array, of a part of a batch."""
    loss, back = layers.gpt2(tokens, params, targets, total, settings.n_head)  # []
    return float(loss), data.pack(flatten(back()[1]))


whole, g = gradient(tokens, targets, total=64)
parts = [gradient(tokens[i : i + 4], targets[i : i + 4], total=64) for i in (0, 4)]
print("whole batch:", f"loss {whole:.12f}, |g| {np.linalg.norm(g):.12f}")
loss, summed = sum(loss for loss, _ in parts), sum(g for _, g in parts)
print("the two:    ", f"loss {loss:.12f}, |g| {np.linalg.norm(summed):.12f}")

# %% [markdown]
# That is all of data parallelism: *losses and gradients of the ranks are added up*. No mean is
# taken anywhere, since all have divided by the same count.
#
# ## The bug of the mean of means
#
# Most programs do it in another way. Each rank takes the mean over its own tokens, and the means
# are averaged. It is tempting: a rank needs to know nothing of the others. In a small case, rank 0
# has three tokens with the gradients 0, 1 and 2, and rank 1 has a single one with 5:

# %%
first, second = np.array([0.0, 1.0, 2.0]), np.array([5.0])
print("mean of all tokens:", np.concatenate([first, second]).mean())
print("mean of the means: ", (first.mean() + second.mean()) / 2)

# %% [markdown]
# The one token of rank 1 counts three times as much as one of rank 0. With equal counts the two
# agree, which is why the bug is seldom found: whoever tests it with full sequences sees nothing.
# In real batches counts do differ: sequences are padded, and prompts have no loss. In this
# package a negative target says so. Let the sequences of the second half be short:

# %%
def shortened(lengths):
    """The targets, of which sequence i keeps the first lengths[i]; the others have no loss."""
    return np.where(np.arange(8) < np.array(lengths)[:, None], targets, -1)  # [b, n_ctx]


for lengths in ([8] * 8, [8, 7, 8, 6, 5, 7, 8, 7], [8, 8, 8, 8, 2, 1, 1, 2]):
    y = shortened(lengths)
    halves = [y[:4], y[4:]]
    counts = [int((half >= 0).sum()) for half in halves]
    whole, g = gradient(tokens, y, sum(counts))
    means = [gradient(tokens[4 * i : 4 * i + 4], halves[i], counts[i]) for i in (0, 1)]
    wrong = (means[0][1] + means[1][1]) / 2
    off = np.linalg.norm(wrong - g) / np.linalg.norm(g)
    loss = (means[0][0] + means[1][0]) / 2
    print(f"tokens {counts}: loss {whole:.5f}, as mean of means {loss:.5f}; "
          f"gradient {off:.0%} off")  # fmt: skip

# %% [markdown]
# The loss looks much the same in all three lines, so no curve tells. The same happens with
# micro-batches on a single device, and there it was found at last, in
# [many trainers at once](https://github.com/huggingface/transformers/issues/34242), years after
# they had been written.
#
# The cure is in the first lines of `Model.step`: the count of tokens is summed over the ranks
# *before* the forward pass, one number, and everybody divides by it. Here is the whole program on
# one, two and four ranks, with the most uneven of these batches, against one device:

# %%
uneven = shortened([8, 8, 8, 8, 2, 1, 1, 2])


def train(layout, kind=Model, steps=3, **other):
    """[losses, norms and the last step's report] of each rank."""
    how = Settings(**{**vars(settings), **other})

    def program(rank):
        trained = kind(rank, init_params(how.config, np.float64, seed=1), how, layout)
        results = [trained.step(tokens, uneven, lr=1e-2) for _ in range(steps)]
        return *zip(*results), trained.report()

    return run(program, Mesh(layout.dp))


alone = OneDevice(init_params(settings.config, np.float64, seed=1), settings)
print("one device", *[f"{alone.step(tokens, uneven, lr=1e-2)[0]:.12f}" for _ in range(3)])
for dp in (1, 2, 4):
    results = train(Layout(dp=dp))
    print(f"dp {dp}      ", *[f"{loss:.12f}" for loss in results[-1][0]])

# %% [markdown]
# ## One message instead of many
#
# A model has many arrays, and most are small: biases and gains. A message costs its latency,
# however short it is (lesson 6). These are GPT-2 XL's gradients in 16 bits, over 64 ranks in as
# many nodes:

# %%
shapes = gpt2_shapes(50257, 1024, 1600, 48)
sizes = [2 * int(np.prod(shape)) for shape in shapes.values()]  # bytes
a100 = gpu("a100")


def seconds(sizes):
    return sum(ring_seconds("all_reduce", 64, n, a100.nic, a100.nic_latency) for n in sizes)


print(f"{len(sizes)} arrays, the smallest {min(sizes)} bytes, the largest {max(sizes):,}")
for name, messages in {
    "a message for each array": sizes,
    "a message for each of 50 layers": [sum(sizes) / 50] * 50,
    "one message": [sum(sizes)],
}.items():
    print(f"{name:32} {seconds(messages):.3f} s")

# %% [markdown]
# So arrays are packed into one flat array, a *bucket*, and unpacked after the reduction. Packing
# costs a copy, unpacking nothing, for the arrays are views:

# %%
grads = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": np.array([5.0])}
flat = data.pack(grads)  # [5]
arrays = data.unpack(10 * flat, data.shapes_of(grads))
print(flat, "->", {name: a.tolist() for name, a in arrays.items()})

# %% [markdown]
# `data.all_reduce` does that, and does not wait: it *starts* the sum, and returns a function that
# waits for it. (It is one of your exercises.)

# %%
def program(rank):
    wait = data.all_reduce({name: rank.device.put(a) for name, a in grads.items()}, rank.dp)
    # ... here the rank may compute something else ...
    return {name: a.numpy().tolist() for name, a in wait().items()}


print(run(program, Mesh(dp=3))[0])

# %% [markdown]
# ## Behind the backward pass
#
# One message for all is the fastest, but it has to wait for the last gradient. The backward pass
# begins at the end of the model. When it has left the last block, that block's gradients are
# complete, and nobody needs the network yet. So each layer's gradients are a bucket of their own,
# and its reduction goes on while the layer before computes (PyTorch's DistributedDataParallel:
# [arXiv 2006.15704](https://arxiv.org/abs/2006.15704), section 3.2.3).
#
# `data.Gradients` keeps account: how many gradients each weight still misses. Let us watch it at
# work in a model of two blocks:

# %%
class Watched(Model):
    def add(self, p, grads):
        if self.rank.rank == 0:
            print("gradients of", ", ".join(sorted({self.short(n) for n in flatten(
                grads, self.prefixes.get(id(p), ""))})))  # fmt: skip
        super().add(p, grads)

    def reduce(self, grads):
        if self.rank.rank == 0:
            print("    reduction starts:", ", ".join(sorted({self.short(n) for n in grads})))
        return super().reduce(grads)

    def short(self, name):  # of a block, or of an array outside of the blocks
        return name[:3] if name.startswith("h.") else name.split(".")[0]


_ = train(Layout(dp=2), Watched, steps=1)

# %% [markdown]
# Look at `wte`. It is used twice, for the logits and for looking up the tokens. Its gradient is
# there after the first line, but not complete: if it were reduced right away, and the rest at the
# end, then as two messages of its size, or, done carelessly, one half would be lost. `uses`
# counts two, so it waits.
#
# What is won? Let time pass on a simulated A100, for GPT-3 XL (1.3 billion weights) on 16 ranks,
# each in another node. `StandIn` is a group whose other ranks are not there; its `overlap` says
# that the network works beside the computing, if the program lets it.

# %%
c = model("gpt3-xl")


def step(batch, buckets=True):
    """A device that has run a step of so many sequences, without numbers."""
    device = Device(0, Cost(a100))
    device.fused, device.record = {"attend", "attend backward", "gelu", "gelu backward",
                                   "layer_norm", "layer_norm backward"}, []  # fmt: skip
    dp = StandIn("dp", range(0, 128, 8), 0, device, overlap=True)
    shapes = gpt2_shapes(c.n_vocab, c.n_ctx, c.n_embd, c.n_layer)
    weights = {name: device.empty(shape, "bf16") for name, shape in shapes.items()}
    tree = unflatten(weights)
    prefixes = {id(p): f"h.{i}." for i, p in enumerate(tree["blocks"])}
    uses = {name: 1 + (name == "wte.weight") for name in weights}
    later = lambda grads: lambda: grads  # noqa: E731
    start = (lambda grads: data.all_reduce(grads, dp)) if buckets else later
    gradients = data.Gradients(uses, start)

    def add(p, grads):
        gradients.add(flatten(grads, prefixes.get(id(p), "")))

    watched = timeline.watch(layers.Layers(), device)
    reduced = layers.Layers(*[data.handing_over(layer, add) for layer in watched])
    ids = device.empty((batch, c.n_ctx), np.int64)  # [b, s]
    _, back = layers.gpt2(ids, tree, ids, 1, c.n_head, reduced)
    back()
    grads = gradients.wait()
    if not buckets:
        data.all_reduce(grads, dp)()
    return device


for buckets in (False, True):
    print("a bucket for each layer" if buckets else "all at the end")
    print(timeline.text(timeline.of_mesh([step(4, buckets)]), width=80))

# %% [markdown]
# (The row "comm" is the network.) How much of the reduction is hidden depends on how much there
# is to compute. The bytes are those of the weights, whatever the batch; the FLOPs grow with it:

# %%
for batch in (1, 2, 4, 8):
    device = step(batch)
    computing, network = device.seconds["compute"], device.seconds["comm"]
    end = max(device.streams.values())
    print(f"{batch} sequences: computing {computing:.2f} s, network {network:.2f} s, "
          f"together {end:.2f} s: {computing / end:.0%} of it computing")  # fmt: skip

# %% [markdown]
# So data parallelism wants many tokens on each rank. A larger batch is not free, though: from some
# size on it learns little more per step ([arXiv 1812.06162](https://arxiv.org/abs/1812.06162),
# section 2, calls it the critical batch size). That bounds `dp`, and is a reason for the other
# dimensions.
#
# ## Accumulation: when to reduce
#
# If a rank's part of the batch does not fit into memory, it runs in micro-batches, one after the
# other, whose gradients are added up at home. It is the same sum as over the ranks: all divide by
# the count of the whole batch. *When* are they reduced? Once, after the last micro-batch. In
# `Gradients` this is `uses` again: a weight gets one gradient from each micro-batch.

# %%
for stage in (0, 2):
    print(f"ZeRO stage {stage}")
    for size in (4, 2, 1):
        losses, _, report = train(Layout(dp=2, zero=stage), micro_batch=size)[0]
        print(f"  micro-batches of {size}: loss {losses[-1]:.12f}, "
              f"sent {report['sent_bytes']['dp']:6} bytes")  # fmt: skip

# %% [markdown]
# In the first three lines the same is sent, however many micro-batches there are. ZeRO 2 (lesson
# 11) does reduce after each of them, for it does not want to keep whole gradients; it pays with
# bytes for memory.
#
# Two mistakes are made here. One is to reduce the *sum so far* after each micro-batch: it then
# contains what others have sent before, which everybody sends again. With gradients 4 and 2 on
# rank 0, 6 and 8 on rank 1:

# %%
def buffer_each_time(rank, grads):
    total = np.zeros(1)
    for g in grads[rank.rank]:
        total = rank.dp.all_reduce(total + g)
    return float(total[0])


def once(rank, grads):
    return float(rank.dp.all_reduce(np.array([sum(grads[rank.rank])]))[0])


for way in (once, buffer_each_time):
    print(f"{way.__name__:16}", run(way, Mesh(dp=2), [[4, 2], [6, 8]]))

# %% [markdown]
# The other mistake is to reduce after the first micro-batch only. Then each rank adds what is
# its own to the sum, weights drift apart, and nothing complains: no rank ever looks at another's
# weights.
#
# ## Clipping comes after the reduction
#
# Long gradients are cut to a norm `max_norm`, all arrays by one factor, to keep the direction. The
# norm is that of the *sum*. Clipping each rank's own gradient first gives something else:

# %%
a, b = np.array([3.0, 0.0]), np.array([0.0, 4.0])  # of rank 0 and of rank 1


def cut(g, max_norm=1.0):
    g = {"w": g.copy()}
    clip(g, max_norm)
    return g["w"]


print("clipped after the sum: ", cut(a + b))
print("clipped before the sum:", cut(a) + cut(b))

# %% [markdown]
# The second is longer than allowed, and it has another direction: the ranks have become equally
# loud, whatever they had to say. And the norm of a sum cannot be had from the norms of its parts,
# since these may cancel out. In our model, four ranks:

# %%
count = int((uneven >= 0).sum())
results = [gradient(tokens[i : i + 2], uneven[i : i + 2], count)[1] for i in (0, 2, 4, 6)]
total = sum(results)
print("norms of the ranks' gradients:", *[f"{np.linalg.norm(g):.4f}" for g in results])
print(f"norm of their sum: {np.linalg.norm(total):.4f}, sum of the norms:",
      f"{sum(np.linalg.norm(g) for g in results):.4f}")  # fmt: skip
before = sum(cut(g, 0.05) for g in results)
cosine = before @ total / np.linalg.norm(before) / np.linalg.norm(total)
print(f"clipped to 0.05 before: norm {np.linalg.norm(before):.4f},",
      f"cosine to the right one {cosine:.3f}")  # fmt: skip
after = cut(total, 0.05)
print(f"clipped to 0.05 after:  norm {np.linalg.norm(after):.4f}")

# %% [markdown]
# In data parallelism every rank has the whole sum after the reduction, so it knows the norm
# without asking. That changes when gradients themselves are split (lessons 8, 10 and 11): then
# the norm is a reduction of its own, and lesson 12 shows how to count every weight once.
#
# ## What a rank holds
#
# All ranks do the same, so the meters are easily read. More ranks, with the same batch:

# %%
rows = {}
for dp in (1, 2, 4, 8):
    report = train(Layout(dp=dp), steps=2)[0][-1]
    rows[f"dp {dp}"] = {kind: n / 1e3 for kind, n in sorted(report["peak_bytes_by_kind"].items())}
    sent = report["sent_bytes"].get("dp", 0)
    n_bytes = 8 * sum(w.size for w in flatten(params).values())
    formula = ring_bytes("all_reduce", dp, n_bytes)
    print(f"dp {dp}: {report['matmul_flops'] / 1e6:6.2f} MFLOP, sent {sent} bytes, "
          f"by the formula {formula:.0f} for the gradients")  # fmt: skip
show_svg(bars("What a rank holds at most", rows, "kB"), "what a rank holds")

# %% [markdown]
# (The few bytes more are the count of tokens and the loss.) FLOPs are divided, and so are
# activations; from dp 4 on memory is fullest at another moment, whatever the batch is.
# Weights, gradients and the optimizer's moments are not: each rank has them all, the same as all
# others. A model that does not fit on one device does not fit on a thousand. Lesson 11 removes
# that waste; before, lessons 8 to 10 split the model itself.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. Three ranks have 3, 3 and 3 tokens. Each of them runs two micro-batches, of 2 and 1 tokens. Is
#    the mean of the means of means right? And with 2 and 1 on two ranks, 1 and 2 on the third?
#    (Make `gradient` of single tokens, or use the numbers of the first small case.)
# 2. `step` cannot hide the last of its reductions. Which one is it, and does it matter more or
#    less in a wider model? (`Watched`; `model("gpt3-6.7b")` for `c`, and the last column)
# 3. From which batch on is the network hidden completely on H100 GPUs, which compute three times
#    as fast and have twice the network? (`gpu("h100")` for `a100`)
