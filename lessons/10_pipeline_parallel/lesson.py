# %% [markdown]
# # 10. Pipeline parallelism: the layers in stages
#
# *40 minutes. Explains [pipeline.py](../../gpt_numpy/parallel/pipeline.py) (`Action`, `gpipe`,
# `one_f_one_b`, `interleaved`, `place`, `play`), `sum_tied` in
# [model.py](../../gpt_numpy/parallel/model.py), and draws with
# [timeline.py](../../gpt_numpy/timeline.py).*
#
# After this lesson you can write the schedules GPipe, 1F1B and interleaved 1F1B as lists; say how
# long each takes, how long its stages are idle and how many activations it holds; say what a
# pipeline sends and what it must not forget; and explain why a program whose sends wait stands
# still with one schedule and not with another.
#
# You need lesson 5 (a layer returns its output and `back`, a function that makes gradients of a
# gradient) and lesson 6: `run(program, mesh)` runs a program on every rank, here `rank.pp` is a
# rank's group, `send` and `recv` hand an array to one other rank, and `isend` does not wait for
# it. (Lesson 8's `{partial: 2}`, an array that is one of two terms of a sum, its `Pair` of a
# forward and a backward function, and `IDENTITY`, the Pair that does nothing, are not needed: a
# stage's arrays are whole.)
#
# Tensor parallelism (lesson 8) cuts every matrix, and talks in every layer. The other way to cut
# a model is between its layers: the first ranks have the first layers, the next ones the next.
# Each such part is a *stage*. All that a stage sends is its output, and backward a gradient of
# the same shape. That is so little that it may cross the network between nodes.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import numpy as np

from gpt_numpy import timeline
from gpt_numpy.cluster import Chunk, Piece, Setup, replay, simulate
from gpt_numpy.flops import bubble, in_flight, model, pipeline_seconds, published_runs
from gpt_numpy.mesh import Done, Mesh, run
from gpt_numpy.parallel import pipeline
from gpt_numpy.parallel.model import Layout, Model
from gpt_numpy.train import OneDevice, Settings, init_params
from lessons import bars, show_svg

# %% [markdown]
# ## A batch that walks through the stages
#
# `place` says which layers stand where; the first stages take one more if need be, for the last
# one has the head as well.

# %%
for stage, layers in enumerate(pipeline.place(n_layer=10, pp=4)):
    print("stage", stage, "has the layers", layers)

# %% [markdown]
# Now let one batch go through. We do not need numbers to see when a stage works, only how long it
# takes: say 1 second forward and 2 backward. `replay` plays a schedule with such durations. Below
# each column is a second: `a` is the forward pass of a batch, `AA` its backward pass.

# %%
def chunks(pp, virtual_stages=1, forward=1, backward=2):
    """Equal chunks of a model, of which a stage takes so long in all."""
    parts = [np.array([t / virtual_stages, 0, 0, 0]) for t in (forward, backward)]
    piece = Piece(*parts, flops=0, held=1, peaks=(1, 0), n_params=0)
    return [Chunk([piece])] * (pp * virtual_stages)


def played(schedule, pp, micro_batches, virtual_stages=1):
    """The stages at their end, and the spans of time in which they worked."""
    spans, layout = [], Layout(pp=pp, schedule=schedule, virtual_stages=virtual_stages)
    return replay(layout, micro_batches, chunks(pp, virtual_stages), spans=spans), spans


# %%
def draw(schedule, pp, micro_batches, virtual_stages=1):
    stages, spans = played(schedule, pp, micro_batches, virtual_stages)
    end = max(stage.clock for stage in stages)
    for lane, own in timeline.lanes(spans).items():
        row = ["."] * round(end * virtual_stages)  # a column is the forward pass of a chunk
        for span in own:
            letter = chr(ord("a") + int(span.name.split()[1].strip(",")))
            letter = letter.upper() if span.kind == "backward" else letter
            start, stop = round(span.start * virtual_stages), round(span.end * virtual_stages)
            row[start:stop] = letter * (stop - start)
        print(lane, "".join(row))
    busy = sum(span.end - span.start for span in spans)
    print(f"{end:g} s, of which a stage is idle {1 - busy / pp / end:.1%}")


draw("gpipe", pp=4, micro_batches=1)

# %% [markdown]
# Four devices, and at any moment one of them works: the price of four for the speed of one. Their
# memory is all that has been gained.
#
# ## Micro-batches
#
# So the batch is cut. While the second stage works on the first piece, the first stage can begin
# with the second one. The pieces are *micro-batches*, and their gradients are added up, so that
# nothing changes in the result (lesson 7 did the same with the parts of dp ranks). This is GPipe
# ([arXiv 1811.06965](https://arxiv.org/abs/1811.06965), section 2 and figure 2c):

# %%
draw("gpipe", pp=4, micro_batches=4)
print()
draw("gpipe", pp=4, micro_batches=8)

# %% [markdown]
# The dots are the *bubble*. Count them in one row: while the pipeline fills and drains, a stage
# misses `p - 1` forward and `p - 1` backward passes, of `p` stages, however many micro-batches
# there are. It works for `m` of each. So a step takes `(m + p - 1)(F + B)`, and what is idle is
#
# ```text
# (p - 1) / (m + p - 1)   of the step's time:  `of="total"`
# (p - 1) / m             of the busy time:    `of="ideal"`, which the Megatron-LM papers print
# ```
#
# Both are called the bubble fraction; the second one is Megatron-LM's
# ([arXiv 2104.04473](https://arxiv.org/abs/2104.04473), section 2.2.1). With one micro-batch on
# four stages they are three quarters and three times: when you read one, ask which.

# %%
for m in (1, 4, 8, 32, 128):
    end = max(stage.clock for stage in played("gpipe", 4, m)[0])
    formula, total, ideal = pipeline_seconds(4, m, 1, 2), bubble(4, m, of="total"), bubble(4, m)
    print(f"{m:4} micro-batches: {end:3.0f} s, by the formula {formula:3.0f}; "
          f"idle {total:.1%} of all, {ideal:.1%} of the busy time")  # fmt: skip

# %% [markdown]
# The cure for the bubble is many micro-batches. But a forward pass leaves activations behind,
# which wait for their backward pass. GPipe runs all forward passes first: at the turn, every
# stage holds the activations of *all* micro-batches. The more there are, the fewer fit.
#
# ## 1F1B: the backward pass as soon as it can
#
# Look at GPipe's picture again. The last stage could run `A` right after `a`: its gradient is
# there. The stage before could go on with it, and so on to the first one. That is 1F1B, one
# forward, one backward (PipeDream-Flush in
# [arXiv 2006.09503](https://arxiv.org/abs/2006.09503), section 3.2):

# %%
draw("1f1b", pp=4, micro_batches=8)

# %% [markdown]
# Exactly as long. The bubble has not shrunk, it stands elsewhere, and in the middle every stage
# takes a new micro-batch only when it has finished an old one. How many does a stage hold? The
# first needs `p` of them under way until the first gradient is back; the last one needs one.

# %%
for schedule in ("gpipe", "1f1b"):
    stages, _ = played(schedule, 4, 8)
    print(f"{schedule:6} holds at most", [stage.peak for stage in stages], "micro-batches,",
          "by the formula", in_flight(schedule, 4, 8))  # fmt: skip

# %% [markdown]
# At most `p`, whatever `m` is. This is why 1F1B is what everyone runs: now `m` may grow until the
# bubble is small.
#
# ## A schedule is a list
#
# How does one program such a thing? Not with loops full of cases. What a stage does is a list of
# actions, and that list is all that differs between schedules:

# %%
print(*pipeline.one_f_one_b(stage=0, pp=3, micro_batches=4)[:4], sep="\n")
for schedule in ("gpipe", "1f1b"):
    print(schedule)
    actions_of = pipeline.SCHEDULES[schedule]
    for stage in range(3):
        actions = actions_of(stage, pp=3, micro_batches=4)
        print("  stage", stage, " ".join(f"{a.kind}{a.micro_batch}" for a in actions))

# %% [markdown]
# Read stage 0 of 1F1B: `F0 F1` is the *warm-up*, as many as stages follow (`p - 1 - stage`); then
# a forward and a backward in turn, so that with the first of these F, p - stage are under way,
# the most that the stage ever holds; then what is left. It is your second exercise, in five lines.
#
# One executor plays any list: `pipeline.play`. For an `F` it receives from the stage before, runs
# its layers, keeps `back`, and sends the output on; for a `B` it receives a gradient, calls that
# `back`, and sends on what it returns. A closure that is kept *is* the activations in flight.
# Here it plays, on four ranks, on a real model. Its losses are one device's:

# %%
settings = Settings(
    n_vocab=280, n_embd=32, n_head=4, n_layer=8, n_ctx=16, batch=8, micro_batch=1, dtype="float64"
)
text = np.random.default_rng(0).integers(0, 280, (8, 17))  # [b, n_ctx + 1]
tokens, targets = text[:, :-1], text[:, 1:]  # [b, n_ctx] each


def weights():
    return init_params(settings.config, np.float64, seed=1)


def train(layout, kind=Model, steps=3):
    """Losses by step, and what each rank reports of the last one."""

    def program(rank):
        trained = kind(rank, weights(), settings, layout)
        losses = [trained.step(tokens, targets, lr=1e-2)[0] for _ in range(steps)]
        return losses, trained.report(), trained.weights

    return run(program, Mesh(layout.dp, layout.pp, layout.tp))


alone = OneDevice(weights(), settings)
one = [alone.step(tokens, targets, lr=1e-2)[0] for _ in range(3)]
print("one device   ", *[f"{loss:.12f}" for loss in one])
reports = {}
for schedule, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
    ranks = train(Layout(pp=4, schedule=schedule, virtual_stages=v))
    reports[schedule] = [report for _, report, _ in ranks]
    print(f"{schedule:13}", *[f"{loss:.12f}" for loss in ranks[0][0]])

# %% [markdown]
# And the devices' meters say what each schedule held (GPipe's last stage the most: the logits of
# all micro-batches wait there):

# %%
rows = {}
for schedule in ("gpipe", "1f1b"):
    print(schedule, "in flight:", [report["in_flight"] for report in reports[schedule]])
    for report in reports[schedule]:
        held = report["peak_bytes_by_kind"]["activations"]
        rows[f"{schedule}, stage {report['pp']}"] = held / 1e3
show_svg(bars("Activations held at most", rows, "kB"), "activations held")

# %% [markdown]
# ## Interleaved: more than one chunk a stage
#
# Can the bubble shrink without more micro-batches? It is `p - 1` passes through a *stage*. If a
# stage has two smaller chunks of the model, and the micro-batches go round the ranks twice, the
# pipeline is full after `p - 1` passes through a chunk, which take half as long. Megatron-LM calls
# the chunks virtual stages ([arXiv 2104.04473](https://arxiv.org/abs/2104.04473), section 2.2.2
# and figure 4):

# %%
for number, layers in enumerate(pipeline.place(n_layer=8, pp=4, virtual_stages=2)):
    print(f"chunk {number // 4} of stage {number % 4}: layers {layers}")
draw("interleaved", pp=4, micro_batches=8, virtual_stages=2)

# %% [markdown]
# A column is now half a second, and a letter comes once for each chunk: in stage 0 the first
# `abcd` is chunk 0, the second one chunk 1. The list takes p micro-batches through chunk 0, the
# same p through chunk 1, then the next p; B takes the chunks from the last to the first. The
# warm-up is `(v - 1) p`, to reach the last chunk, and two more for each stage that follows,
# `2 (p - 1 - stage)`: on stage 0 that is 4 + 6 = 10. The micro-batches have to divide by p.
#
# The three schedules as pictures, 4 stages and 8 micro-batches:

# %%
for schedule, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
    stages, spans = played(schedule, 4, 8, v)
    total = bubble(4, 8, v, of="total")
    print(f"{schedule}: {max(s.clock for s in stages):g} s, idle {total:.1%}")
    show_svg(timeline.svg(spans, width=900), f"timeline {schedule}")

# %% [markdown]
# With `v` chunks the bubble is `(p - 1) / (m v)` of the busy time. Nothing is free: each
# micro-batch crosses from rank to rank `v` times as often, and more of it is in flight. The
# meters of the runs above, in bytes over `pp`, and a formula: `cuts` between chunks, an output
# and a gradient of `[tokens, n_embd]` across each of them.

# %%
for schedule, v in (("1f1b", 1), ("interleaved", 2)):
    total = sum(report["sent_bytes"]["pp"] for report in reports[schedule])
    cuts, row = 4 * v - 1, 8 * settings.n_embd  # bytes of a token's activation
    formula = 2 * cuts * tokens.size * row + 2 * settings.n_vocab * row + 2 * (4 - 1) * 8 * 2
    flying = [report["in_flight"] for report in reports[schedule]]
    print(f"{schedule:12} sent {total} bytes, by the formula {formula}; chunks in flight {flying}")
for v in (2, 3, 6):
    first = in_flight("interleaved", 4, 8, v)[0]
    print(f"4 stages of {v} chunks: {first} in flight on the first, by the formula "
          f"{4 * v + 4 - 1}; as many as {first / v:.1f} micro-batches")  # fmt: skip

# %% [markdown]
# A chunk is half a stage here, so 11 chunks are 5.5 micro-batches, where 1F1B had 4. In general
# the first stage has `p v + p - 1` chunks in flight, of `1 / v` of a stage each: that is
# `p + (p - 1) / v` micro-batches. So it is always more than 1F1B's `p`, but six chunks hold less
# than two.
#
# Two small terms are left in the formula of the bytes: two numbers (the loss and the norm) that
# all stages sum, and something of the size of the vocabulary. What is that?
#
# ## The tied embedding
#
# GPT-2 uses one matrix, `wte`, twice: to look tokens up, and to make logits. In a pipeline the
# first use is on the first stage and the second on the last one. Both ends hold a copy, each
# copy gets one half of the gradient, and they stay equal only if both ends add the two halves
# up: `sum_tied`. Suppose someone forgets it:

# %%
class Forgetful(Model):
    def sum_tied(self, grads):
        pass


print("one device:", *[f"{loss:.6f}" for loss in one])
for kind in (Model, Forgetful):
    ranks = train(Layout(pp=4), kind)
    first, last = [ranks[i][2]["wte.weight"].numpy() for i in (0, 3)]  # [v, d] each
    print(f"{kind.__name__}:", *[f"{loss:.6f}" for loss in ranks[0][0]],
          f" the copies differ by {abs(first - last).max():.4f}")  # fmt: skip

# %% [markdown]
# The loss still falls (here even faster than it should), nothing complains, and the model has two
# embeddings that drift apart. The first step's loss is right in any case, for it is computed
# before any update: whoever compares nothing else does not see it. (Lesson 11 has another trap of
# the same matrix: the gradient's norm must count it once.)
#
# ## Why the sends must not wait
#
# In `play`, each send is an `isend`, which does not wait until the other side receives. Does that
# matter? Let us give the executor a group whose `isend` does wait, and a model of one number:

# %%
class Waiting:
    """A group on which every send waits for its receive."""

    def __init__(self, group):
        self.rank, self.size, self.recv, self.group = group.rank, group.size, group.recv, group

    def isend(self, x, dst, tag):
        return Done(self.group.send(x, dst, tag))


def program(rank, schedule):
    def forward(micro_batch, chunk, x):  # each stage doubles what it gets
        x = np.ones(1) if x is None else x
        return 2 * x, lambda dy=1.0: (2 * dy * np.ones(1), {})

    actions_of = pipeline.SCHEDULES[schedule]
    actions = actions_of(rank.pp.rank, rank.pp.size, micro_batches=4)
    return pipeline.play(actions, Waiting(rank.pp), 1, forward)[1]


print("gpipe: it runs, in flight", run(lambda rank: program(rank, "gpipe"), Mesh(pp=2)))
try:
    run(lambda rank: program(rank, "1f1b"), Mesh(pp=2))
except RuntimeError as error:
    print(f"1f1b: {type(error).__name__}: {error}")

# %% [markdown]
# Read it aloud. Stage 0 wants to hand over its next output; stage 1 wants to hand back a
# gradient. Each waits for the other to receive, and neither does. GPipe never gets there: in its
# first half everything flows forward, in its second half back, so the last stage always receives
# and the line gets going. In 1F1B traffic goes both ways at once. Megatron-LM sends and receives
# in one combined call (`send_forward_recv_backward`); `play` sends without waiting, and waits for
# its sends at the very end.
#
# ## At scale
#
# GPT-3 175B on 64 A100, `tp` 8 inside each node and `pp` 8 across them, with 16 micro-batches of
# one sequence. The simulated cluster (lesson 13) plays the same lists, with what each layer takes
# on such a GPU:

# %%
rows, pictures = {}, {}
for schedule, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 6)):
    layout = Layout(dp=1, pp=8, tp=8, sequence_parallel=True, schedule=schedule,
                    virtual_stages=v, recompute="selective")  # fmt: skip
    spans, name = [], f"{schedule}, v = {v}"
    step = simulate(Setup(model("gpt3-175b"), layout, global_batch=16), spans=spans)
    pipe = max(span.end for span in spans if span.kind in ("forward", "backward"))
    idle, ideal = step.parts["bubble"] / pipe, bubble(8, 16, v, of="total")
    print(f"{name:18}: {step.seconds:.2f} s per step, idle {idle:.1%} (equal stages: {ideal:.1%}),"
          f" activations {step.fullest['activations'] / 1e9:.1f} GB")  # fmt: skip
    rows[name] = {kind: size / 1e9 for kind, size in step.fullest.items()}
    pictures[name] = spans
show_svg(bars("Memory of the fullest GPU", rows, "GB"), "memory of schedules")

# %% [markdown]
# GPipe and 1F1B take the same time; GPipe pays for it with activations. More chunks, less bubble
# (a share of the pipeline's time), and six hold less than two, as the formula said. The
# bubble is not quite that of equal stages, because they are not equal: the last one has the head
# as well. Here is 1F1B; after the pipeline come the optimizer and what else happens once a step:

# %%
spans = [span for span in pictures["1f1b, v = 1"] if span.kind != "send"]  # too short to see
show_svg(timeline.svg(spans, width=900), "timeline gpt3")

# %% [markdown]
# MegaScale ([arXiv 2402.15627](https://arxiv.org/abs/2402.15627), Table 2) trained on up to 12,288
# GPUs, always with 8 stages of 6 chunks. A batch of one size over more GPUs makes more pipelines,
# with fewer micro-batches each. This is how *strong scaling* loses: the bubble grows.

# %%
for row in published_runs():
    if row.id.startswith("ms_t2_MS"):
        m = row.global_batch // row.dp // row.micro_batch
        shares = [bubble(row.pp, m, v, of="total") for v in (1, row.virtual_stages)]
        print(f"{row.n_gpus:6} GPUs, batch {row.global_batch}: {m:3} micro-batches, idle "
              f"{shares[1]:.1%} of the time; without chunks {shares[0]:.1%}")  # fmt: skip

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. What if a backward pass took no longer than a forward pass: is the share of idle time larger,
#    smaller or the same? Why? (`chunks` with another `backward`; `draw`)
# 2. Interleaved, `pp=4`, 8 micro-batches: which stage holds the most with 4 virtual stages, and
#    is that more or less than 1F1B's 4, in micro-batches of a whole stage? (`in_flight`)
# 3. With three ranks instead of two, does GPipe stand still when its sends wait? And 1F1B, if it
#    has only one micro-batch? (`Mesh(pp=3)`; `micro_batches` in
#    `program`)
