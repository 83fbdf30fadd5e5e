# %% [markdown]
# # 12. Three dimensions: dp x pp x tp
#
# *35 minutes. Explains [model.py](../../gpt_numpy/parallel/model.py) (`Layout`, `check`,
# `Model`), `Mesh` in [mesh.py](../../gpt_numpy/mesh.py) and
# [plan.py](../../gpt_numpy/plan.py).*
#
# After this lesson you can number the ranks of a grid and say who talks to whom; count a
# pipeline's micro-batches; train one model on any layout and get the same weights; say why a
# gradient's norm is counted wrong so easily; search for the best layout of a cluster; and run the
# package's training on code that you have written.
#
# Each of the last lessons had one idea: split the batch, the matrices, the layers, what ranks
# hold twice. Each has its limit. Tensor parallelism wants to stay in a node (lesson 8), a pipeline
# wants many micro-batches (lesson 10), data parallelism wants a large batch (lesson 7). Large runs
# take a little of each. What has to be changed in them, so that they go together?

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import tempfile
from pathlib import Path

import numpy as np

from gpt_numpy.__main__ import table
from gpt_numpy.cluster import Setup
from gpt_numpy.flops import model, n_params, published_runs, ring_bytes, state_bytes
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.parallel.model import Layout, Model
from gpt_numpy.plan import plan
from gpt_numpy.train import OneDevice, Settings, init_params
from gpt_numpy.train import train as train_on_text
from lessons import bars, show_svg

# %% [markdown]
# ## A rank has three coordinates
#
# Write the ranks down in rows of `tp`; `pp` rows are one copy of the model; there are `dp` copies.
# This is a grid of 2 x 3 x 2:

# %%
mesh = Mesh(dp=2, pp=3, tp=2)
for dp in range(2):
    for pp in range(3):
        row = mesh.grid[dp, pp]  # [tp]
        print(f"copy {dp}, stage {pp}: ranks", *[f"{rank:2}" for rank in row])
print("rank 5:", mesh.coordinates(5))

# %% [markdown]
# Reading a number as coordinates is division with remainders, as with hours, minutes and seconds:
# `rank % tp`, then the quotient modulo `pp`, then what is left. (Your first exercise. Test it with
# three *different* sizes: in 2 x 2 x 2 many wrong formulas are right.)
#
# A rank's groups are the lines through its place. Along `tp` it shares each matrix, along `pp` the
# layers, and along `dp` are the ranks that hold the very same weights:

# %%
for axis in ("tp", "pp", "dp"):
    print(axis, sorted({tuple(mesh.along(rank, axis)) for rank in range(mesh.size)}))

# %% [markdown]
# The order is a choice. `tp` talks most, so its ranks are neighbours, in one node. For the other
# two, programs differ: here `dp` changes slowest, in Megatron-LM `pp` does (its default order is
# tp, dp, pp). Let us see who talks how much, in a published run: MegaScale's 175B model on 3,072
# GPUs ([arXiv 2402.15627](https://arxiv.org/abs/2402.15627), table 2). Bytes that one GPU sends in
# a step, by the formulas of lessons 7, 8 and 10:

# %%
(large,) = [r for r in published_runs() if r.id == "ms_t2_MS_6144_3072"]
m = large.global_batch // large.dp // large.micro_batch
x = 2 * large.micro_batch * large.n_ctx * large.n_embd  # bytes of an array [n, d] in 16 bits
weights = 12 * large.n_layer * large.n_embd**2 // large.pp // large.tp  # of a GPU, nearly
sent = {
    "tp": 4 * large.n_layer // large.pp * m * ring_bytes("all_reduce", large.tp, x),
    "pp": 2 * large.virtual_stages * m * x // large.tp,
    "dp": ring_bytes("all_reduce", large.dp, 4 * weights),
}
print(f"dp {large.dp}, pp {large.pp}, tp {large.tp}: {m} micro-batches")
for axis, n in sent.items():
    print(f"{axis}: {n / 1e9:7.1f} GB")

# %% [markdown]
# Nearly everything is `tp`. That is the whole reason for the order. (Here a `pp` rank sends an
# eighth of the activations, its part of the sequence, and the gradients of `dp` are in 32 bits.)
#
# ## Who has sequences of its own?
#
# Above, `m` is the number of micro-batches that each pipeline runs. The `tp` ranks compute parts
# of the same products, of the same sequences; and every stage of a pipeline sees every sequence
# that goes through it. So only `dp` divides the batch. For some published runs:

# %%
shown = {}
for r in published_runs():
    shown.setdefault((r.n_gpus, r.dp, r.pp, r.tp, r.global_batch, r.micro_batch), r)
print("   GPUs    dp  pp  tp   batch  micro-batch  micro-batches   batch / GPUs / micro-batch")
for (gpus, dp, pp, tp, batch, size), _ in sorted(shown.items())[2::4]:
    print(f"{gpus:7} {dp:5} {pp:3} {tp:3} {batch:7} {size:12} {batch // dp // size:14} "
          f"{batch / gpus / size:28.2f}")  # fmt: skip

# %% [markdown]
# The last column is what those get who think that every GPU has sequences of its own. It need not
# even be a whole number. Only where `pp` and `tp` are 1 is it right, so do not test it there.
#
# ## The same weights from every layout
#
# Now to the program. A `Layout` is eight fields, and `Model` runs a training step on one rank of
# a mesh. Look at its lines in [model.py](../../gpt_numpy/parallel/model.py): each strategy has
# replaced one thing, and knows nothing of the others.
#
# | strategy | what it replaces |
# | --- | --- |
# | tp | arrays by their parts, layers by `split_layers` |
# | pp | the order of passes by a schedule, played by `pipeline.play` |
# | dp | nothing before the gradients; then `reduce` |
# | ZeRO | `reduce`, and the arrays that the optimizer moves |
# | recomputation | a layer by one that forgets |
#
# If that is true, all combinations must give what one device gives. Not nearly, and not the loss
# only: all weights, after two steps of AdamW.

# %%
settings = Settings(
    n_vocab=280, n_embd=32, n_head=4, n_layer=4, n_ctx=16, batch=8, micro_batch=2,
    dtype="float64", max_norm=0.5,
)  # fmt: skip
text = np.random.default_rng(0).integers(0, 280, (8, 17))  # [b, n_ctx + 1]
tokens, targets = text[:, :-1], text[:, 1:].copy()  # [b, n_ctx] each
targets[5:, 3:] = -1  # the last three sequences are short


def weights():
    return init_params(settings.config, np.float64, seed=1)


def steps(trained, n=2):
    """[(loss, norm)] of n steps."""
    return [trained.step(tokens, targets, lr=1e-2) for _ in range(n)]


def train(layout, kind=Model, n=2):
    """Losses and norms by step; the whole state; reports of all ranks."""

    def program(rank):
        trained = kind(rank, weights(), settings, layout)
        return steps(trained, n), trained.report(), trained.state()

    results = run(program, Mesh(layout.dp, layout.pp, layout.tp))
    return results[0][0], results[0][2], [report for _, report, _ in results]


alone = OneDevice(weights(), settings)
right = steps(alone)
print("one device:", *[f"loss {loss:.12f}" for loss, _ in right])

# %%
layouts = {
    "dp 8": Layout(dp=8),
    "pp 4": Layout(pp=4),
    "tp 4": Layout(tp=4),
    "2 x 2 x 2": Layout(2, 2, 2),
    "2 x 2 x 2, gpipe": Layout(2, 2, 2, schedule="gpipe"),
    "2 x 2 x 2, interleaved": Layout(2, 2, 2, schedule="interleaved", virtual_stages=2),
    "2 x 2 x 2, sequence parallel": Layout(2, 2, 2, sequence_parallel=True),
    "2 x 2 x 2, ZeRO 1": Layout(2, 2, 2, zero=1),
    "2 x 2 x 2, ZeRO 3": Layout(2, 2, 2, zero=3),
    "4 x 1 x 2, ZeRO 2, recomputed": Layout(4, 1, 2, zero=2, recompute="full"),
    "all of it": Layout(2, 2, 2, True, 3, "interleaved", 2, "selective"),
}
expected, rows = alone.state(), {}
for name, layout in layouts.items():
    results, state, reports = train(layout)
    error = max(abs(state[key] - expected[key]).max() for key in expected)
    assert error < 1e-10, (name, error)
    rows[name] = {
        axis: sum(report["sent_bytes"].get(axis, 0) for report in reports) / len(reports) / 1e3
        for axis in ("dp", "pp", "tp")
    }
    peak = max(report["peak_bytes"] for report in reports) / 1e3
    print(f"{name:30} loss {results[-1][0]:.12f}, weights and moments equal, peak {peak:4.0f} kB")

# %% [markdown]
# "Equal" is up to rounding: sums are taken in another order. The package's tests do this with
# more layouts. It is the strongest test there is for such a program, and a cheap one, since the
# model may be tiny: what can be wrong with a layout is wrong in a small model, too.
#
# What differs is what is sent, and what is held:

# %%
show_svg(bars("Sent by a rank in a step, mean", rows, "kB"), "sent by layout")
for name in ("dp 8", "pp 4", "tp 4", "2 x 2 x 2"):
    print(f"{name:10}", ", ".join(f"{axis} {n:6.1f} kB" for axis, n in rows[name].items()))

# %% [markdown]
# ## One number that needs all three
#
# There is one place where strategies cannot ignore each other: the norm of the gradient, for
# clipping and for the log. It is a sum of squares over *all* weights, which are scattered over
# the grid, some of them more than once:
#
# - Matrices are split over `tp`: their squares are summed over the ranks.
# - Layer norms and some biases are whole on every rank of `tp`, with the same gradient. They count
#   on one of them.
# - The tied embedding is on the first stage and on the last. It counts on the first.
# - After the reduction all `dp` ranks have the same: nothing is to be summed. Unless ZeRO has
#   scattered the gradients, then there is.
#
# `Model.total` says just that. What happens to someone who sums up what each rank has?

# %%
class SumsAll(Model):
    def total(self, squares):
        square = sum(squares.values())
        return self.rank.pp.all_reduce(self.rank.tp.all_reduce(square))


class CountsTheCopy(Model):
    def total(self, squares):
        tied = squares.get("wte.weight") if self.rank.pp.rank > 0 else None
        extra = self.rank.device.put(np.zeros(())) if tied is None else tied
        extra = self.rank.pp.all_reduce(self.rank.tp.all_reduce(extra))
        return super().total(squares) + extra


norm = right[0][1]
print(f"one device: norm {norm:.6f}, scaled by {settings.max_norm / norm:.3f}")
for kind in (Model, SumsAll, CountsTheCopy):
    print(kind.__name__)
    for layout in (Layout(dp=2), Layout(tp=2), Layout(tp=4), Layout(pp=2), Layout(2, 2, 2)):
        ((_, norm),), _, _ = train(layout, kind, n=1)
        print(f"    {layout.dp} x {layout.pp} x {layout.tp}: norm {norm:.6f}, "
              f"scaled by {settings.max_norm / norm:.3f}")  # fmt: skip

# %% [markdown]
# A wrong norm does not stop anything. Gradients are cut more than they should be, on some layouts
# and not on others, and the log shows a norm that is too high. Adam, which divides by the
# gradient's usual size, even hides most of it. Such a bug lives long
# ([one of several](https://github.com/NVIDIA-NeMo/RL/pull/3788)). What finds it is, again, the
# comparison with one device, with a `max_norm` that does cut.
#
# ## Which layout?
#
# All give the same weights, so one is free to take the fastest. What limits the choice is memory.
# This is what 13 billion weights take with Adam in mixed precision, before any activation, if
# they are split in several ways over 64 GPUs of 80 GB:

# %%
c = model("gpt3-13b")
for dp, split, stage in ((64, 1, 0), (64, 1, 1), (64, 1, 3), (16, 4, 0), (16, 4, 1), (8, 8, 0)):
    held = state_bytes(n_params(c) / split, dp, stage)
    print(f"dp {dp:2}, pp * tp {split}, ZeRO {stage}: {held / 1e9:6.1f} GB")

# %% [markdown]
# Then there are micro-batches, schedules, virtual stages, recomputation, sequence parallelism:
# thousands of combinations. [plan.py](../../gpt_numpy/plan.py) lists all that fit, by closed
# forms; estimates each of them by the busiest stage, the bubble and the network; and simulates
# the most promising ones (lesson 13 says how far such a simulation can be trusted). On the command
# line it is `python -m gpt_numpy plan --model gpt3-13b --gpus 64 --global-batch 512`.

# %%
def search(name, gpus, batch, top=3):
    best, n = plan(Setup(model(name), Layout(), batch, flash=2), gpus, top)
    print(f"{name} on {gpus} A100, {batch} sequences a step: {n:,} layouts fit. The fastest:")
    for step in best:
        x, held = step.setup.layout, sum(step.fullest.values()) / 1e9
        print(f"    {step.seconds:5.1f} s  MFU {step.percent():.0f} %  {held:3.0f} GB  "
              f"dp {x.dp}, pp {x.pp} ({x.virtual_stages} chunks), tp {x.tp}, ZeRO {x.zero}, "
              f"micro-batch {step.setup.micro_batch}")  # fmt: skip


search("gpt3-13b", 64, 512)
search("gpt3-13b", 64, 64)

# %% [markdown]
# The same GPUs and the same model, and only the batch differs. With fewer sequences for each GPU
# there is less computing behind which anything could be hidden, bubbles are larger, and the MFU
# falls. There is no best layout of a model; there is one for a model, a batch and a cluster.
#
# ## The capstone: it runs on your code
#
# The functions that the exercises teach are the ones that the package calls. In a student's copy
# they are taken out, and the package imports yours:
#
# ```text
# python -m lessons release ../mine
# cd ../mine
# python -m lessons check 8        (and 7, 10, 11: until all pass)
# python -m gpt_numpy train --text FILE --out model --dp 2 --pp 2 --tp 2
# ```
#
# While something is missing, the command ends with the name of the exercise that it needs. When it
# runs, every byte between these eight devices has gone through what you wrote. This is the same
# command, as a call:

# %%
words = np.random.default_rng(0).integers(0, 300, 6000)
text = " ".join(f"word{i * i}" for i in words)
small = Settings(
    n_vocab=300, n_embd=32, n_layer=2, n_ctx=32, steps=20, batch=8, micro_batch=2, dtype="float64"
)
with tempfile.TemporaryDirectory() as folder:
    one = train_on_text(text, Path(folder) / "one", small)
    split = train_on_text(text, Path(folder) / "split", small, layout=Layout(2, 2, 2))
for name, result in (("one device", one), ("2 x 2 x 2", split)):
    print(f"{name:10}", *[f"{loss:.9f}" for loss in result["losses"][::6]])
print(table(split["ranks"]))

# %% [markdown]
# Read the table as you would a cluster's monitor. Ranks 0, 1 and 4, 5 are first stages, and have
# two micro-batches in flight; the others are last stages, and have the head's products. Each pair
# in `tp` sends the most, and all within the pair.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. Which ranks talk over the network if 2 x 3 x 2 ranks are on nodes of four? Which axis would
#    profit if `pp` changed slowest, as in Megatron-LM? (`mesh.along`, and `// 4`)
# 2. `SumsAll` is right with dp 2. Is it still with `Layout(dp=2, zero=1)`? By what factor would it
#    be wrong, if all ranks' parts were equally long? (Add it to the list.)
# 3. With a batch of 16 sequences, `dp` cannot be more than 16. What will the other GPUs do, and
#    what becomes of the MFU? (`search("gpt3-13b", 64, 16)`)
