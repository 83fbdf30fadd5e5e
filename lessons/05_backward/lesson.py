# %% [markdown]
# # 5. Backward: how a model learns, and what that costs
#
# *40 minutes. Explains [layers.py](../../gpt_numpy/layers.py) (every layer and its `back`,
# `recompute`, `gpt2`), and of [train.py](../../gpt_numpy/train.py) `OneDevice`.*
#
# After this lesson you can write a layer with its backward pass, and prove it right by finite
# differences; say in which order gradients have to arrive, and where they add up; show by counting
# why backward costs twice the forward pass; measure what memory training holds, and trade it for
# FLOPs; and train a small model.
#
# Training is one question, asked again and again: if this weight were a little larger, how would
# the loss change? There may be 175 billion weights, and asking each by itself would take as many
# forward passes. A backward pass answers for all of them at once, for the price of two.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

from pathlib import Path

import numpy as np

import gpt_numpy
from gpt_numpy import flops, layers, train
from gpt_numpy.checkpoint import flatten, gpt2_shapes, unflatten
from gpt_numpy.device import Device
from gpt_numpy.gpt2 import attention_mask
from gpt_numpy.optim import AdamW
from gpt_numpy.sample import generate
from gpt_numpy.tokenizer import Tokenizer
from lessons import bars, show_svg

# %% [markdown]
# ## One layer, both ways
#
# A layer takes `x` and gives `y`. Going backward it gets `dy`: for each number in `y`, how fast
# the loss grows with it. It has to answer with `dx`, the same for its input, and with the
# gradients of its parameters. In this package a layer returns its output and a function `back`
# that answers:
#
# ```python
# y, back = layer(x, p)
# dx, dp = back(dy)
# ```
#
# Here is the layer that models are made of, `y = x @ w + b`. (`layers.linear` takes and gives
# lists, since several linear layers may read one `x`.)

# %%
x = np.array([[1.0, 2.0], [0.0, 1.0]])  # [n, d_in], two tokens
p = {"w": np.array([[10.0], [20.0]]), "b": np.array([5.0])}  # [d_in, d_out], [d_out]
(y,), back = layers.linear(x, p)  # [n, d_out]
dy = np.array([[1.0], [3.0]])  # [n, d_out], from the layers that follow
dx, (dp,) = back(dy)
print("y", y.tolist())
print("dx", dx.tolist(), " dw", dp["w"].tolist(), " db", dp["b"].tolist())

# %% [markdown]
# Three formulas, and the shapes nearly decide them:
#
# - `dx = dy @ w.T`, `[n, d_out] @ [d_out, d_in]`: a number in `x` reaches `y` through a row of
#   `w`, and hears back through the same row.
# - `dw = x.T @ dy`, `[d_in, n] @ [n, d_out]`: a weight is used by *every* token, so its gradient
#   is a sum over all of them.
# - `db = dy.sum(axis=0)`: so is the bias's. A sum, no mean: if the loss is a mean, `dy` has it.
#
# Where did `back` find `x`? It is a *closure*, a function that keeps alive what it uses. It holds
# `x` as long as somebody holds `back`. That is all there is to "saving activations for the
# backward pass", and we will weigh it below.
#
# ## Is it right? Nudge it and see
#
# A gradient makes a claim that can be tested: nudge one number, and the loss changes by the
# gradient times the nudge. Nudged to both sides, so that the curve's bend cancels, these are
# *central differences*.


# %%
def by_nudging(loss, a, step=1e-4):
    """The gradient of loss() with respect to an array that it reads, one number at a time."""
    grad = np.empty_like(a)
    for i in np.ndindex(a.shape):
        kept, at = a[i], []
        for a[i] in (kept + step, kept - step):
            at.append(loss())
        a[i] = kept
        grad[i] = (at[0] - at[1]) / (2 * step)
    return grad


for name in ("w", "b"):
    nudged = by_nudging(lambda: (dy * layers.linear(x, p)[0][0]).sum(), p[name])
    print(f"d{name} by nudging", nudged.round(6).tolist())

# %% [markdown]
# How small a nudge? The error shrinks with its square: a tenth of the step, a hundredth of the
# error. But only until rounding takes over. A wrong formula has an error that stays. And nudge in
# float64: float32's rounding would drown it all.

# %%
z = np.array([0.5, 1.0, -2.0])  # [3]
_, back = layers.gelu(z)
exact = back(np.ones(3))  # the slope at each
off = {}
for step in (1e-1, 1e-2, 1e-3, 1e-13):
    off[step] = np.abs(by_nudging(lambda: layers.gelu(z)[0].sum(), z, step) - exact).max()
for step in (1e-1, 1e-2, 1e-3):
    print(f"step {step:5}: gelu's slope is off by {off[step]:.0e}")
print("step 1e-13: worse than 1e-3?", off[1e-13] > off[1e-3])

# %% [markdown]
# ## Every layer's closure
#
# | layer | what its `back` holds | what it answers |
# | --- | --- | --- |
# | `linear` | `x` | `dx`, `w`, `b` |
# | `gelu` | `x`; the tanh is computed again, which is cheaper than holding it | `dx` |
# | `layer_norm` | `x` with mean 0 and variance 1, and `1/std` of each row | `dx`, `g`, `b` |
# | `attend` | queries, keys, values, and the weights `[s, s]` of each head | `dx` |
# | `embedding` | token ids; a token that occurs twice adds twice | `wte`, `wpe` |
# | `cross_entropy` | the probabilities, in the logits' own memory | `dx` |
# | `block` | what those inside it hold | `dx`, and a dict of dicts |
#
# All of them, in small sizes, for the nudging. The loss is `sum(dy * y)` with a random `dy`, so
# that no two numbers of `y` matter alike, and errors cannot cancel.

# %%
rng = np.random.default_rng(0)
tiny = flops.Config(n_embd=4, n_head=2, n_layer=2, n_ctx=3, n_vocab=7)
tokens = np.array([[1, 5, 5], [0, 5, 2]])  # [b, s]
params = flatten(train.init_params(tiny, np.float64))
params = unflatten({name: w + rng.normal(size=w.shape) / 3 for name, w in params.items()})
p, ends = params["blocks"][0], {name: params[name] for name in ("wte", "wpe")}
wide = rng.normal(size=(6, 12))  # [n, 3d]
x, mask = wide[:, :4], attention_mask(3, 3, wide)  # [n, d], [s, s]
LAYERS = {  # name: (its input, its parameters, the layer)
    "linear": (x, p["mlp"]["c_fc"], layers.linear),
    "gelu": (wide, {}, lambda x, _: layers.gelu(x)),
    "layer_norm": (x, p["ln_1"], layers.layer_norm),
    "attend": (wide, {}, lambda x, _: layers.attend(x, mask, 2)),
    "embedding": (tokens, ends, layers.embedding),
    "cross_entropy": (wide, {}, lambda x, _: layers.cross_entropy(x.copy(), tokens.ravel(), 6)),
    "block": (x, p, lambda x, p: layers.block(x, p, mask, 2)),
}

# %% [markdown]
# `check` is short enough to keep: it is how the layers of this package were tested, too.


# %%
def arrays(tree):
    """The arrays in dicts (in the order of their keys), lists and tuples; token ids are none."""
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, (list, tuple)):
        return [a for part in tree for a in arrays(part)]
    return [] if tree is None or tree is tokens else [tree]


def check(x, p, layer):
    """The largest difference between a layer's gradients and nudged ones, and their number."""

    def loss():
        return (dy * arrays(layer(x, p)[0])[0]).sum()

    y, back = layer(x, p)
    dy = rng.normal(size=np.shape(arrays(y)[0]))
    nudged = [by_nudging(loss, a) for a in arrays([x, p])]
    pairs = zip(arrays(back(dy.copy())), nudged)
    return max(np.abs(a - b).max() for a, b in pairs), sum(a.size for a in nudged)


for name, case in LAYERS.items():
    error, count = check(*case)
    print(f"{name:14} {count:4} gradients, all off by less than 1e-6: {error < 1e-6}")

# %% [markdown]
# And would it notice? Here is `linear` with the commonest slip, `dy @ w` where `dy @ w.T` belongs.
# With a square `w` the shapes are right, and everything runs.


# %%
def slip(x, p):
    return x @ p["w"] + p["b"], lambda dy: (dy @ p["w"], {"w": x.T @ dy, "b": dy.sum(axis=0)})


error, _ = check(x, p["attn"]["c_proj"], slip)
print(f"with the slip, off by {error:.1f}")

# %% [markdown]
# One formula is worth a look. The gradient of cross-entropy, `-log p(target)`, with respect to
# the logits is the probabilities, less 1 at the target: `p - one_hot`. Each row adds up to zero,
# since adding the same to all logits changes nothing. The sum is divided by `total` tokens; if
# that is the count of a whole batch, the gradients of its parts can simply be added up.

# %%
logits = np.log([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])  # [n, v]
loss, back = layers.cross_entropy(logits.copy(), np.array([0, 1]), total=2)
print(back(1.0).round(3).tolist())
one_hot = np.eye(3)[[0, 1]]  # [n, v]
print(((np.exp(logits) - one_hot) / 2).round(3).tolist())

# %% [markdown]
# ## The order, and where gradients add up
#
# A model is layers one after another, so backward is their `back`s in the opposite order. That
# order is not a habit. A value that is used twice gets a gradient from each use, and *the two are
# added*; it may pass its own gradient on only when both have come. Last used, first asked: then
# they have.
#
# Two things in a GPT are used twice. Each block adds its branch to `x`, which goes around it as
# well: `sublayer`'s `back` returns `dx + dy`. And `wte` is both the first layer's table and the
# head's matrix. We put an ear to the layers:


# %%
def watch(layer, hear):
    """The same layer; it calls hear(None) after its forward pass, hear(grads) after `back`."""

    def run(*args):
        y, back = layer(*args)
        hear(None)

        def watched(dy):
            dx, grads = back(dy)
            hear(grads)
            return dx, grads

        return y, watched

    return run


heard, of_wte = [], {}


def ear(name):
    def hear(grads):
        heard.append(name if grads is None else f"{name}'s back")
        if grads and "wte" in grads:
            of_wte[name] = grads["wte"]

    return hear


watched = layers.Layers(*[watch(f, ear(name)) for name, f in layers.Layers()._asdict().items()])
targets = np.roll(tokens, -1)  # [b, s]
loss, back = layers.gpt2(tokens, params, targets, targets.size, 2, watched)
_, grads = back()
print(", ".join(heard))

wte, small_step = params["wte"], 1e-5
nudged = by_nudging(lambda: layers.gpt2(tokens, params, targets, 6, 2)[0], wte, small_step)
of_wte["both together"] = of_wte["head"] + of_wte["embedding"]
for name, grad in {**of_wte, "gpt2's own": grads["wte"]}.items():
    print(f"wte's gradient, {name:13}: off by {np.abs(grad - nudged).max():.2f}")

# %% [markdown]
# ## Why backward costs twice
#
# Look again at the three formulas of `linear`. Forward there is one product, backward there are
# two, and each has the same three sizes, `n`, `d_in`, `d_out`, so the same `2 n d_in d_out` FLOPs.
# Attention's two products, scores and values, become four. A device counts them:

# %%
config = flops.model("gpt2")


def on_shapes(config, dtype="fp32"):
    """A device, and on it a model that has shapes and no numbers (lesson 4)."""
    device, sizes = Device(), (config.n_vocab, config.n_ctx, config.n_embd, config.n_layer)
    with device.kind("weights"):
        weights = {name: device.empty(s, dtype) for name, s in gpt2_shapes(*sizes).items()}
    return device, unflatten(weights)


device, on_device = on_shapes(config)
p, n, d = on_device["blocks"][0], 1024, config.n_embd
x, qkv = device.empty((n, d)), device.empty((n, 3 * d))  # [n, d], [n, 3d]
mask = attention_mask(n, n, x)  # [s, s]
for name, run in {
    "linear": lambda: layers.linear(x, p["mlp"]["c_fc"]),
    "attend": lambda: layers.attend(qkv, mask, config.n_head),
    "block": lambda: layers.block(x, p, mask, config.n_head),
}.items():
    device.reset_meters()
    y, back = run()
    forward = device.matmul_flops
    back(arrays(y)[0])
    backward = device.matmul_flops - forward
    print(f"{name:7} forward {forward:14,}, backward {backward:14,}: {backward / forward:g}")

# %% [markdown]
# One forward and two backward make the three of [lesson 4](../04_flops/README.md), and its 6N.
# Nothing is computed twice in this: the second product is there because there are two questions,
# one for the input and one for the weights.
#
# ## What training holds
#
# Generating text needs the weights. Training holds four kinds of memory: weights; gradients;
# AdamW's `m` and `v`, each as large as the weights; and *activations*, all that closures hold
# until their turn comes. Here is a step of GPT-2 in float32 on 4 sequences, on shapes. We read
# the meter on the way.

# %%
device, on_device = on_shapes(config)
with device.kind("optimizer"):
    optimizer = AdamW(flatten(on_device))
forwards = {1 + k: f"forward, after {k} blocks" for k in (0, 4, 8, 12)}
backwards = {28 - k: f"backward, in block {k}" for k in (12, 8, 4, 1)}
calls, moments = 0, {"before": dict(device.held_by_kind)}


def hear(grads):
    global calls
    for g in arrays(grads):
        device.label(g, "gradients")
    calls += 1  # of 28: the embedding, 12 blocks, the head, and all of them again
    if calls in forwards | backwards:
        moments[(forwards | backwards)[calls]] = dict(device.held_by_kind)


ids = device.empty((4, config.n_ctx), int)  # [b, s]
watched = layers.Layers(*[watch(layer, hear) for layer in layers.Layers()])
loss, back = layers.gpt2(ids, on_device, ids, ids.size, config.n_head, watched)
_, grads = back()
for g in arrays(grads):  # the tied one is a sum, and new
    device.label(g, "gradients")
moments["after"] = dict(device.held_by_kind)

# %%
kinds = ("weights", "optimizer", "gradients", "activations")
gb = {moment: {k: held.get(k, 0) / 1e9 for k in kinds} for moment, held in moments.items()}
for moment, held in gb.items():
    print(f"{moment:24}", *[f"{kind} {size:.2f}" for kind, size in held.items()], "GB")
print("bytes per parameter:", end=" ")
print({k: moments["after"][k] // flops.n_params(config) for k in kinds[:3]})
show_svg(bars("A training step of GPT-2, 4 sequences", gb, "GB"), "what training holds")

# %% [markdown]
# The mountain of activations is as high as the batch is large; the other kinds do not care about
# the batch. It is highest where forward turns into backward, and melts as closures are called and
# dropped, while gradients grow.
#
# How much does one block hold? [arXiv 2205.05198](https://arxiv.org/abs/2205.05198), Table 2, has
# a formula, `34 s b h + 5 a s^2 b` bytes in 16 bits, where b is sequences and a is heads; without
# dropout, which has masks to keep, it is `32 s b h + 2 a s^2 b`. The second term is attention's
# weights, `[s, s]` for each head.
#
# ## Recomputation: memory for FLOPs
#
# What a closure need not hold is what it can compute again. `layers.recompute` makes a layer that
# drops its `back` at once, keeps its inputs alone, and runs once more when the gradient arrives.
# Around a whole block this is *full* recomputation, around attention alone *selective*.
# `flash_attend` never holds its weights in the first place. On one block of GPT-3:

# %%
config = flops.model("gpt3-175b")
device, on_device = on_shapes(config._replace(n_layer=1), "bf16")
mask = attention_mask(config.n_ctx, config.n_ctx, device.empty((), "bf16"))  # [s, s]
sizes = config.n_ctx, 1, config.n_embd, config.n_head


def weigh(block, **how):
    """Bytes that a block's back holds, and FLOPs of both passes."""
    device.reset_meters()
    before = device.held
    x = device.empty((config.n_ctx, config.n_embd), "bf16")  # [n, d]
    y, back = block(x, on_device["blocks"][0], mask, config.n_head, **how)
    del x
    held = device.held - y.nbytes - before
    back(y)
    return held, device.matmul_flops


# %%
plain = weigh(layers.block)
WAYS = {  # name: what weigh needs, what the formula needs
    "none": ({}, {}),
    "flash": ({"attend": layers.flash_attend}, {"flash": True}),
    "selective": ({"attend": layers.recompute(layers.attend)}, {"recompute": "selective"}),
    "full": ({"block": layers.recompute(layers.block)}, {"recompute": "full"}),
}
for name, (how, formula) in WAYS.items():
    held, done = weigh(**{"block": layers.block, **how})
    paper = flops.activation_bytes(*sizes, dropout=False, **formula)
    times = 3 * done / plain[1]
    print(f"{name:9} held {held:13,} bytes, formula {paper:13,}, {times:.2f} forward passes")

# %% [markdown]
# The few bytes of difference are `1/std` of each row, which the two layer norms keep and the paper
# leaves out. Full recomputation holds the block's input and nothing else, for a fourth forward
# pass. Selective recomputation drops attention's term and costs next to nothing. `flash_attend`
# computes its weights again, too, and still does fewer FLOPs than plain attention, since it skips
# what the mask hides. And the gradients? The same operations on the same numbers, so the same to
# the last bit:

# %%
_, back = layers.gpt2(tokens, params, targets, 6, 2)
full = layers.Layers(block=layers.recompute(layers.block))
_, back_full = layers.gpt2(tokens, params, targets, 6, 2, full)
pairs = zip(arrays(back()), arrays(back_full()))
print("equal to the bit:", all(np.array_equal(a, b) for a, b in pairs))

# %% [markdown]
# ## Training the small model
#
# Now all of it on real text: pages of Jane Austen that lie beside the package, in a vocabulary of
# 320 tokens learned from them, and a model of one block. `OneDevice.step` is what you have seen:
# `layers.gpt2`, `back()`, then AdamW.

# %%
text = (Path(gpt_numpy.__file__).parent / "tiny" / "held_out.txt").read_text(encoding="utf-8")
tokenizer = Tokenizer.train(text, 320)
ids = np.array(tokenizer.encode(text))  # [n]
learned, unseen = ids[:-2000], ids[-2000:]
settings = train.Settings(
    n_vocab=320, n_embd=96, n_layer=1, n_ctx=32, batch=16, steps=200, lr=5e-3, dtype="float64"
)
params = train.init_params(settings.config, np.float64)
small, losses = train.OneDevice(params, settings), []
for step in range(settings.steps):
    batch = train.draw_batch(learned, settings.batch, 32, np.random.default_rng(step))  # [b, s]
    losses.append(small.step(*batch, train.learning_rate(settings, step))[0])

counts = np.bincount(learned, minlength=320)
p = counts[counts > 0] / len(learned)
print(f"knowing nothing, ln 320:           {np.log(320):.2f}")
print(f"knowing how frequent tokens are:   {-(p * np.log(p)).sum():.2f}")
print("loss at steps 0, 25, 50, ...:     ", *[f"{loss:.2f}" for loss in losses[::25]])
print(f"on text that it has not seen:      {train.held_out_loss(params, 4, unseen, 32):.2f}")
told = generate(params, 4, tokenizer.encode("She was"), 40, temperature=0.5, seed=0)
print(ascii("She was" + tokenizer.decode(list(told))))

# %% [markdown]
# It begins at `ln 320`, as one who guesses must. Within 25 steps it knows which tokens are
# frequent, and stays there for a while; only then does it begin to use what came before. It is no
# writer yet: `python -m gpt_numpy train` goes on for as long as you like, and the package's own
# small model (`python -m gpt_numpy generate`) has learned for much longer.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. Fine-tuning may freeze a matrix: `dx` is still needed, `dw` is not. By how much does the
#    backward pass of `linear` get cheaper? And what need its `back` no longer hold? (Write it as
#    `slip` is written, and run it on a device.)
# 2. On how many sequences do activations and everything else need the same memory, for GPT-2 in
#    the picture above? And with full recomputation? (`ids`, `layers.recompute`)
# 3. `check` passes `cross_entropy` a copy of the logits. What happens without `.copy()`, and why
#    does the package do it this way? (`layers.cross_entropy`, its first line)
