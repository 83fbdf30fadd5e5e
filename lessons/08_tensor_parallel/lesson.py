# %% [markdown]
# # 8. Tensor parallelism
#
# *35 minutes. Explains [parallel/tensor.py](../../gpt_numpy/parallel/tensor.py) (`enter`, `leave`,
# `split`, `embedding`, `cross_entropy`), and where [layers.py](../../gpt_numpy/layers.py) calls
# for them (`linear`, `linear_sum`, `block`, `head`).*
#
# After this lesson you can split the MLP and the attention of a block over ranks, forward and
# backward, with two all-reduces in each direction; say what each of a rank's arrays is: whole, a
# part, or a partial sum; compute the loss of logits that no rank has all of; predict how many
# bytes are sent; and say why these ranks should sit in one node.
#
# You need lesson 5 (a layer returns its output and `back`, which makes gradients of a gradient)
# and lesson 6: `run(program, mesh)` runs a program on every rank, `rank.tp` is a rank's group,
# `rank.device.put` puts an array on its device, and `tp.all_reduce(x)` *returns* the sum over the
# ranks. Two things are used here for the first time. `[n, m] {partial: 2}` in a comment is an
# array of this shape that is one of two terms: only the sum over two ranks is what it should be.
# And a `Pair` is two functions, `forward` and `backward`, what a place in the model does to an
# array in each direction; `IDENTITY` is the Pair that changes nothing.
#
# Data parallelism (lesson 7) gives every rank all weights. GPT-3's fit on no GPU, so the weights
# themselves have to be split. The idea of Megatron-LM
# ([arXiv 1909.08053](https://arxiv.org/abs/1909.08053), section 3) is to split every matrix, in
# such a way that the ranks need to talk as rarely as possible.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import numpy as np

from gpt_numpy import layers
from gpt_numpy.checkpoint import flatten, gpt2_shapes, unflatten
from gpt_numpy.cost import Cost
from gpt_numpy.device import Device
from gpt_numpy.flops import Config, model, ring_bytes, training_flops
from gpt_numpy.gpt2 import attention_mask, gelu
from gpt_numpy.hardware import gpu
from gpt_numpy.layers import IDENTITY, Pair
from gpt_numpy.mesh import Mesh, StandIn, run
from gpt_numpy.parallel import tensor
from gpt_numpy.parallel.model import Layout, split_layers
from gpt_numpy.train import init_params
from lessons import bars, show_svg

# %% [markdown]
# ## Two ways to cut a matrix
#
# A matrix can be cut between columns or between rows. What do two ranks get from `y = x @ w`, if
# each of them has one half of `w`?

# %%
x = np.array([[1, 2, 3, 4]])  # [n, k]
w = np.array([[1, 0], [0, 1], [1, 1], [2, 0]])  # [k, m]
print("y:         ", x @ w)

w0, w1 = np.split(w, 2, axis=1)  # two of [k, m/2]
print("by columns:", x @ w0, "and", x @ w1)  # two of [n, m/2]

w0, w1 = np.split(w, 2)  # two of [k/2, m]
x0, x1 = np.split(x, 2, axis=1)  # two of [n, k/2]
print("by rows:   ", x0 @ w0, "and", x1 @ w1)  # two of [n, m] {partial: 2}

# %% [markdown]
# - **By columns** a rank needs all of `x`, and has some columns of `y`, which are right.
# - **By rows** a rank needs only some columns of `x`, and has a *partial sum*: an array of the
#   shape of `y`, none of whose numbers is right before those of all ranks have been added up.
#
# One begins with the whole and ends with parts, the other begins with parts and ends with a sum.
# So they fit together: first by columns, then by rows, and between the two nothing is sent.
#
# ## Why in this order
#
# In the MLP there is a `gelu` between the matrices. It works on each number alone, so a rank can
# apply it to its own columns. To a partial sum it cannot: `gelu` of a sum is not the sum of the
# `gelu`s.

# %%
a, b = 2.0, -1.5  # what two ranks have of one hidden unit, if the first matrix is cut by rows
print(f"gelu(a) + gelu(b) = {gelu(a) + gelu(b):.3f}, but gelu(a + b) = {gelu(a + b):.3f}")

# %% [markdown]
# So here is the MLP on four ranks: each has a quarter of the hidden units, that is a quarter of
# the columns of `c_fc` and the same rows of `c_proj`. One all-reduce makes the result whole.

# %%
n, d = 6, 8  # tokens, n_embd
draw = np.random.default_rng(0).standard_normal
x, w1, b1, w2, b2 = draw((n, d)), draw((d, 4 * d)), draw(4 * d), draw((4 * d, d)), draw(d)


def mlp(rank):
    tp, put = rank.tp, rank.device.put
    c_fc = put(np.split(w1, tp.size, axis=1)[tp.rank])  # [d, 4d/tp]
    bias = put(np.split(b1, tp.size)[tp.rank])  # [4d/tp]
    c_proj = put(np.split(w2, tp.size)[tp.rank])  # [4d/tp, d]
    hidden = gelu(put(x) @ c_fc + bias)  # [n, d] @ [d, 4d/tp] -> [n, 4d/tp]
    y = hidden @ c_proj  # [n, 4d/tp] @ [4d/tp, d] -> [n, d] {partial: tp}
    return (tp.all_reduce(y) + put(b2)).numpy()  # [n, d]


mesh = Mesh(tp=4)
ys = run(mlp, mesh)
right = gelu(x @ w1 + b1) @ w2 + b2  # [n, d]
print("equal to one device's, on every rank:", all(np.allclose(y, right, 0, 1e-12) for y in ys))
print("FLOPs of a rank:", mesh.devices[0].matmul_flops, "of", 2 * 2 * n * d * 4 * d)
print("bytes sent by a rank:", mesh.devices[0].sent["tp"], "= 2 * 3/4 *", right.nbytes)

# %% [markdown]
# Look at the last line of the function: the bias of `c_proj` is added after the sum. Each rank
# has all of it, and a rank that adds it before gets it four times. GPT-2's biases start as zeros,
# so a fresh model does not show that mistake; a trained one does.
#
# ## Backward: f and g
#
# Going backward, the sum over ranks turns up at the other end. `dy`, the gradient of the output,
# is whole on every rank, as `y` was. By the chain rule each rank gets from it the gradients of
# its own weights, all of them, without asking anyone. But `x` was used by all ranks, and so its
# gradient is a sum over all ranks, of which each has one term.
#
# There are then two places where the ranks talk, and two directions. The paper calls the places
# f and g (its Figure 3):
#
# | | forward | backward |
# | --- | --- | --- |
# | f, before the columns: `enter` | nothing: `x` is whole | all-reduce: `dx` is a partial sum |
# | g, after the rows: `leave` | all-reduce: `y` is a partial sum | nothing: `dy` is whole |
#
# Each is the other, turned round: they are *conjugate*. In the package they are two lines. The
# same `block` runs on one device, where the pairs do nothing, and on many.

# %%
c = Config(n_embd=8, n_head=4, n_layer=2, n_ctx=6, n_vocab=37)
params = init_params(c, np.float64, seed=1)
for w in flatten(params).values():
    w += 0.2 * draw(w.shape)  # no zeros and ones that hide mistakes
names = [name for name in flatten(params) if name.startswith("h.0.")]
x, dy = draw((c.n_ctx, c.n_embd)), draw((c.n_ctx, c.n_embd))  # two of [n, d]


def one_block(rank, enter, leave):
    """y, dx and the gradients of a block on a rank, {"y": [n, d], ...}; gradients: its parts."""
    tp, put, whole = rank.tp, rank.device.put, flatten(params)
    parts = {name: put(tensor.split(name, whole[name], tp.size)[tp.rank]) for name in names}
    mask = attention_mask(c.n_ctx, c.n_ctx, put(x))  # [s, s]
    p, n_head = unflatten(parts)["blocks"][0], c.n_head // tp.size
    y, back = layers.block(put(x), p, mask, n_head, enter(tp), leave(tp))  # [n, d]
    dx, grads = back(put(dy))
    grads = flatten(grads, "h.0.")
    return {name: a.numpy() for name, a in {"y": y, "dx": dx, **grads}.items()}


shown = "y", "dx", "h.0.ln_1.weight", "h.0.mlp.c_fc.weight"


def compare(enter, leave, size=4):
    """How far each result is from one device's, at most over all ranks."""
    (right,) = run(one_block, Mesh(tp=1), enter, leave)
    results = run(one_block, Mesh(tp=size), enter, leave)
    texts = []
    for name in shown:
        expected = tensor.split(name, right[name], size)  # size parts, or the whole on each rank
        error = max(abs(r[name] - e).max() for r, e in zip(results, expected))
        error /= abs(right[name]).max()
        texts.append("equal" if error < 1e-12 else f"{error:.0%} off")
    return texts


def nothing(tp):
    return IDENTITY


def sum_both_ways(tp):
    return Pair(tp.all_reduce, tp.all_reduce)


def mean_backward(tp):
    return Pair(forward=IDENTITY.forward, backward=lambda dx: tp.all_reduce(dx) / tp.size)


print(f"{'':24}{'y':10}{'dx':10}{'ln_1':10}c_fc")
for text, enter, leave in [
    ("f and g", tensor.enter, tensor.leave),
    ("without f", nothing, tensor.leave),
    ("without g", tensor.enter, nothing),
    ("g sums backward, too", tensor.enter, sum_both_ways),
    ("f takes the mean", mean_backward, tensor.leave),
]:
    print(f"{text:24}" + "".join(f"{t:10}" for t in compare(enter, leave)).rstrip())

# %% [markdown]
# The table is worth a minute, since each of its lines but the first is a mistake that was made in
# a real program. In three of these four the forward pass is right, and with it the first loss.
# Such a program trains, only worse. That is why the package's tests compare *gradients* with one
# device's, not losses.
#
# Do not trust the `equal` of `c_fc` in the line "without f". It is there only because we gave this
# block the right `dy`, which without f only the last block of a model gets. Its wrong `dx` is the
# `dy` of the block before, where all gradients are wrong.
#
# Note what is never reduced: the gradients of the weights. Each weight is on one rank only, and
# its rank has all it needs. The layer norms' are on all ranks, which compute the same gradients
# for them, since f has made the gradient whole that reaches them.
#
# ## Attention is split by heads
#
# A head attends by itself: its queries, keys and values meet no other head's. So a rank gets
# whole heads. `c_attn` gives queries, keys and values, and is split by columns; `c_proj`, which
# mixes what the heads have found, by rows. Again columns, then rows, f before and g after.
#
# There is a trap. GPT-2 keeps the three matrices side by side in one, `[q | k | v]`. Here is
# which of its columns each of two ranks should have, and which it gets by cutting in the middle:

# %%
columns = np.arange(12)  # of c_attn, d = 4, two heads: q is 0 to 3, k is 4 to 7, v is 8 to 11
print("by heads:     ", *tensor.split("h.0.attn.c_attn.bias", columns, 2))
print("in the middle:", *np.split(columns, 2))

# %% [markdown]
# Rank 0 takes its first two columns for queries, the next two for keys, the last two for values.
# In the second line these are queries of head 0, queries of head 1, and keys of head 0. All
# shapes are right. A freshly initialised model even trains with it, because random columns are as
# good as any others; a model that was trained on one device talks nonsense.
#
# And a head cannot be cut, so `tp` has to divide their number. GPT-2 XL's 25 heads are a nuisance:

# %%
try:
    tensor.check(model("gpt2-xl"), tp=8)
except ValueError as error:
    print(error)

# %% [markdown]
# ## What a rank does and sends
#
# Attention and MLP have an f and a g each. So a block has two all-reduces forward and two
# backward (Figure 4 of the paper), each of an array `[n, d]`. A ring all-reduce over `t` ranks
# sends `2 (t - 1) / t` times the array (lesson 6). Let us hold the meters against that, for a
# block of GPT-3 175B and one sequence. `StandIn` is a group whose other ranks are not there, but
# are taken to do the same as this one; so one rank is enough.

# %%
def block_of(c, device, ranks):
    """Run a block of a model forward and backward, without numbers, on one of these ranks."""
    tp, parts = StandIn("tp", ranks, 0, device), {}
    for name, shape in gpt2_shapes(1, 1, c.n_embd, 1).items():
        if name.startswith("h.0."):
            shape = [m // tp.size if i == tensor.split_axis(name) else m
                     for i, m in enumerate(shape)]  # fmt: skip
            parts[name] = device.empty(shape, "bf16")
    x = device.empty((c.n_ctx, c.n_embd), "bf16")  # [n, d]
    mask, n_head = attention_mask(c.n_ctx, c.n_ctx, x), c.n_head // tp.size
    p, pairs = unflatten(parts)["blocks"][0], (tensor.enter(tp), tensor.leave(tp))
    y, back = layers.block(x, p, mask, n_head, *pairs)  # [n, d]
    sent = device.sent["tp"]
    back(y)
    return sum(w.nbytes for w in parts.values()), sent, device.sent["tp"] - sent


gpt3 = model("gpt3-175b")
size = 2 * gpt3.n_ctx * gpt3.n_embd  # bytes of an array [n, d]
print("ranks  weights   FLOPs        sent forward  backward   two all-reduces")
for t in (1, 2, 4, 8, 16):
    device = Device(0)
    weights, forward, backward = block_of(gpt3, device, range(t))
    formula = 2 * ring_bytes("all_reduce", t, size) / 1e6
    print(f"{t:5} {weights / 1e6:6.0f} MB {device.matmul_flops / 1e12:6.2f} T "
          f"{forward / 1e6:14.1f} MB {backward / 1e6:6.1f} MB {formula:14.1f} MB")  # fmt: skip

# %% [markdown]
# Weights and FLOPs are divided by the number of ranks. What is sent is not: every rank sends, for
# each block and direction, nearly four times its array `[n, d]`, and the more ranks there are the
# *more* it sends. That is the price; the last section makes seconds of it.
#
# ## The vocabulary
#
# Outside of the blocks there is one more large matrix, the embedding `wte`, `[v, d]`. It is split
# by rows: each rank has some of the tokens. Given ids, a rank looks up those that it has, puts
# zeros for the others, and the sum over ranks is whole, since each id is found on just one rank.

# %%
wte, wpe = np.arange(1.0, 8.0)[:, None] * [1, 10], np.zeros((6, 2))  # [v, d], [n_ctx, d]; v = 7
ids = np.array([[6, 2, 0, 3, 5]])  # [b, s]


def look_up(rank, leave):
    tp, put = rank.tp, rank.device.put
    p = {"wte": put(tensor.split("wte.weight", wte, tp.size)[tp.rank]), "wpe": put(wpe)}
    x, _ = tensor.embedding(put(ids), p, tp, leave(tp))  # [n, d]
    return p["wte"].numpy()[:, 0].tolist(), x.numpy()[:, 0].tolist()


for rank, (rows, found) in enumerate(run(look_up, Mesh(tp=3), nothing)):
    print(f"rank {rank} has {rows} and finds {found}")
print("the sum:", run(look_up, Mesh(tp=3), tensor.leave)[0][1])

# %% [markdown]
# Seven tokens do not divide by three, so `split` has added rows of zeros. They are never looked
# up, but we shall meet them again.
#
# ## A loss without all logits
#
# The same matrix makes the logits: `[n, d] @ [d, v/tp]`, by columns of its transpose, so a rank
# has the logits `[n, v/tp]` of its own tokens. To gather them would be the largest message of
# all: a vocabulary is much wider than `d`. But what does the loss of a token need? With target `t`
#
# ```text
# loss = log(sum over j of exp(z_j)) - z_t
# ```
#
# it is a sum, and one single logit. Three numbers per token have to be reduced: the maximum `m`
# of the logits, so that no exponential overflows; the sum of `exp(z_j - m)`; and `z_t - m`, to
# which ranks that do not have the target add 0. Here are logits of four tokens with probabilities
# 0.1, 0.2, 0.3 and 0.4, on two ranks, and 3 is the target.

# %%
parts = np.log([[1.0, 2.0], [3.0, 4.0]])  # a row for each rank
m = parts.max()
sums = np.exp(parts - m).sum(axis=1)  # [tp], one for each rank
target = np.array([0, parts[1, 1] - m])  # [tp]; rank 1 has it
loss = np.log(sums.sum()) - target.sum()
print(f"loss {loss:.4f} = -log 0.4")

own = parts.max(axis=1, keepdims=True)  # [tp, 1]
sums = np.exp(parts - own).sum(axis=1)  # [tp]
target = np.array([0, parts[1, 1] - own[1, 0]])  # [tp]
print(f"if each rank takes its own maximum: {np.log(sums.sum()) - target.sum():.4f}")

# %% [markdown]
# The second is wrong, because the two sums are not in the same unit: one is in multiples of
# `exp(own[0])`, the other of `exp(own[1])`. For a target that rank 0 has it would be too small.
#
# `tensor.cross_entropy` does this for all tokens. It also sets the logits of padding to minus
# infinity: rows of zeros would make logits of 0, and `exp(0)` is 1, which is no small number
# where all logits are negative. Backward nothing is sent at all: the gradient is the
# probability, less 1 where the target is, and each rank has its own columns of both.

# %%
logits, targets = 3 * draw((n, 37)), np.array([3, 36, -1, 0, 11, 20])  # [n, v], [n]; -1: no loss


def loss_of(rank):
    tp, put = rank.tp, rank.device.put
    padded = np.pad(logits, [(0, 0), (0, -37 % tp.size)])  # [n, 37] -> [n, 40], say
    mine = put(np.split(padded, tp.size, axis=1)[tp.rank])  # [n, v/tp]
    loss, back = tensor.cross_entropy(mine, put(targets), 5, tp, n_vocab=37)  # []
    sent = rank.device.sent["tp"]
    dlogits = back(1.0).numpy()  # [n, v/tp]
    return float(loss.numpy()), dlogits, sent, rank.device.sent["tp"] - sent


for size in (1, 2, 4):
    results = run(loss_of, Mesh(tp=size))
    whole = np.concatenate([dlogits for _, dlogits, _, _ in results], axis=1)  # [n, 40]
    print(f"tp {size}: loss {results[0][0]:.12f}, |dlogits| {np.linalg.norm(whole):.12f}, "
          f"sent {results[0][2]} bytes forward, {results[0][3]} backward")  # fmt: skip

# %% [markdown]
# How much is saved? For one sequence of GPT-3 on eight ranks, in 32 bits: three all-reduces of
# a number per token, or an all-gather of logits.

# %%
v = -(-gpt3.n_vocab // 8) * 8
three = 3 * ring_bytes("all_reduce", 8, 4 * gpt3.n_ctx)
gathered = ring_bytes("all_gather", 8, 4 * gpt3.n_ctx * v)
times = gathered / three
print(f"{three / 1e3:.0f} kB instead of {gathered / 1e6:.0f} MB, {times:,.0f} times less")

# %% [markdown]
# ## The whole model
#
# `split_layers` puts this together: it returns one device's layers with f, g, the split embedding
# and the split loss in them, and `layers.gpt2` runs them. Loss and gradients are one device's,
# whatever the number of ranks.

# %%
tokens, targets = np.random.default_rng(1).integers(0, c.n_vocab, (2, 3, c.n_ctx))  # two of [b, s]


def train_once(rank):
    tp, put = rank.tp, rank.device.put
    whole = flatten(params).items()
    parts = {name: put(tensor.split(name, w, tp.size)[tp.rank]) for name, w in whole}
    split = split_layers(Layout(tp=tp.size), tp, c.n_vocab)
    how = put(targets), targets.size, c.n_head // tp.size, split
    loss, back = layers.gpt2(put(tokens), unflatten(parts), *how)  # []
    grads = flatten(back()[1])
    return float(loss.numpy()), {name: g.numpy() for name, g in grads.items()}


for size in (1, 2, 4):
    results = run(train_once, Mesh(tp=size))
    whole = {name: tensor.join(name, [grads[name] for _, grads in results], c.n_vocab)
             for name in results[0][1]}  # fmt: skip
    if size == 1:
        first = whole
    error = max(abs(whole[name] - first[name]).max() for name in first)
    print(f"tp {size}: loss {results[0][0]:.12f}; of {len(whole)} gradients, all are",
          "equal" if error < 1e-12 else "NOT EQUAL")  # fmt: skip

# %% [markdown]
# ## Why tp stays inside a node
#
# Eight GPUs in a node talk over NVLink; nodes talk over a network that is an order of magnitude
# slower. And the all-reduces of tensor parallelism are in the way: a rank cannot go on without
# the sum. So let time pass on the simulated device, by the data sheets of an A100 and the fitted
# constants of [cost.py](../../gpt_numpy/cost.py), and run the block of GPT-3 again, forward and
# backward. `ranks` says where in the cluster they are, eight to a node.

# %%
a100, rows = gpu("a100"), {}


def milliseconds(c, ranks):
    """How long a block of a model computes and talks on a rank."""
    device = Device(0, Cost(a100))
    device.fused = {"attend", "attend backward", "gelu", "gelu backward", "layer_norm",
                    "layer_norm backward"}  # fmt: skip
    block_of(c, device, ranks)
    return 1e3 * device.seconds["compute"], 1e3 * device.seconds["comm"]


print("                        computing   talking    total  efficiency")
for text, ranks in {
    "1 GPU": range(1), "2, one node": range(2), "4, one node": range(4), "8, one node": range(8),
    "16, two nodes": range(16), "32, four nodes": range(32), "8 nodes, one each": range(0, 64, 8),
}.items():  # fmt: skip
    computing, talking = milliseconds(gpt3, ranks)
    rows[text] = {"computing": computing, "talking": talking}
    seconds, alone = computing + talking, sum(rows["1 GPU"].values())
    print(f"{text:22} {computing:7.1f} ms {talking:6.1f} ms {seconds:5.1f} ms "
          f"{alone / seconds / len(ranks):11.0%}")  # fmt: skip
show_svg(bars("A block of GPT-3 175B, forward and backward", rows, "ms"), "tp and nodes")

# %% [markdown]
# The efficiency is the time of one GPU, divided by that of all of them together: how much of what
# so many GPUs could do is done. Inside the node twice the ranks take nearly half the time. Beyond,
# computing no longer halves: it shrinks to some 60 % with each doubling, for not all of it is
# split, and short products are slower. And talking takes *longer*, although sixteen ranks use all
# sixteen network cards at once, which is as good as it gets.
# Soon most of what a further GPU could do is lost, while data parallelism would make use of
# nearly all of it. And one GPU in each of eight nodes spends half of its time waiting for its
# network card: that is what placing ranks wrongly costs.
#
# So `tp` is usually no more than the GPUs of a node
# ([arXiv 2104.04473](https://arxiv.org/abs/2104.04473), section 3.2 and its takeaway 1), and a
# `Mesh` numbers `tp`'s ranks consecutively. The rest is left to strategies that send less:
# pipelines (lesson 10) and data parallelism.
#
# A smaller model has less to compute between two all-reduces: FLOPs grow with `d` squared, bytes
# with `d`. It is the width of a model that makes tensor parallelism worth while. Here is how long
# a block of each of three models talks on eight ranks of one node, measured by its computing:

# %%
for name in ("gpt3-xl", "gpt3-6.7b", "gpt3-175b"):
    shape = model(name)
    flops = training_flops(shape._replace(n_layer=1, n_vocab=0), 1)
    sent = 4 * ring_bytes("all_reduce", 8, 2 * shape.n_ctx * shape.n_embd)
    each = flops / 8 / sent
    computing, talking = milliseconds(shape, range(8))
    print(f"{name:10} d {shape.n_embd:6,}: {each:6,.0f} FLOPs for each byte sent, tp 8; "
          f"talks {talking / computing:.0%} as long as it computes")  # fmt: skip
print(f"an A100 makes {a100.peak / a100.nvlink:,.0f} while NVLink sends one, "
      f"{a100.peak / a100.nic:,.0f} while the network does")  # fmt: skip

# %% [markdown]
# The narrowest talks about a third as long as it computes, GPT-3 175B a ninth.
#
# One thing has not become smaller: the arrays `[n, d]` between f and g, the layer norms and the
# residual stream, are whole on every rank, and so is the work on them. That is the next lesson.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. MegaScale's parallel block has no `ln_2`: attention and MLP read the same norm and are added
#    up before g. How many all-reduces has it? (Give `gpt2_shapes` in `block_of` the option
#    `parallel_block=True`, and look at what is sent.)
# 2. Which of the five lines of the table of mistakes change if `size` is 1? What does that say
#    about tests that run on one rank? (`compare(..., size=1)`)
# 3. Eight ranks, four in one node and four in the next, `range(4, 12)`: are they nearer to eight
#    in one node, or to one in each of eight? And is it different on an H100? (`gpu("h100")`)
