# %% [markdown]
# # 2. The forward pass, line by line
#
# *40 minutes. Explains [gpt2.py](../../gpt_numpy/gpt2.py), all of it but the cache, which is
# lesson 3's.*
#
# After this lesson you can say what each line of a GPT computes, and the shape of every array on
# the way; split attention into heads and put them together again; draw a causal, a prefix and a
# sliding-window mask, and prove by running what a token can read; say what the loss of a model
# that knows nothing is; and count where the FLOPs go.
#
# A GPT is a function from token ids to *logits*: for each position of the text, a score for every
# token that may come next. It has three parts:
#
# ```text
# ids -> embed -> block, block, ... block -> logits
# ```
#
# All of it stands in `gpt2.py`, some 60 lines. Here you see those lines, not a copy of them, and
# what they do to a text of five tokens.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import inspect
from pathlib import Path

import numpy as np

import gpt_numpy
from gpt_numpy.checkpoint import flatten, gpt2_shapes, load_gpt2, unflatten
from gpt_numpy.device import Device
from gpt_numpy.flops import Config, attention_pairs, forward_flops, model, n_params
from gpt_numpy.gpt2 import (
    attention,
    attention_mask,
    block,
    feed_forward,
    gelu,
    gpt2,
    layer_norm,
    linear,
    softmax,
)
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import held_out_loss, init_params
from lessons import bars, show_svg

# %% [markdown]
# ## The parameters
#
# A model is a dictionary of arrays. Ours is as small as it can be while all sizes differ, so that
# a shape tells what it is: d = 6 numbers for each token, h = 2 heads with e = 3 numbers each,
# v = 11 tokens in the vocabulary, at most 8 of them in a text. The names are those of OpenAI's
# GPT-2, where d = 768, h = 12, e = 64, v = 50,257.

# %%
config = Config(n_embd=6, n_head=2, n_layer=2, n_ctx=8, n_vocab=11)
params = init_params(config, np.float64, seed=1)
for name, w in flatten(params).items():
    if not name.startswith("h.1"):  # the second block has the same shapes
        print(f"{name:22} {list(w.shape)}")
print(f"{n_params(config):,} parameters; GPT-2 has {n_params(model('gpt2')):,}")

# %% [markdown]
# To see what a line makes, run it. `watch` runs a function and prints those of its lines that make
# an array. The comment on a line is the shape that its author promises ("..." may be a batch, or
# nothing; `h/tp` is h until lesson 8); below it stands what was really there.

# %%
def watch(function, *args, **options):
    lines, first = inspect.getsourcelines(function)
    at, known, shown = None, {}, set()

    def report(frame):
        made = {
            name: x
            for name, x in frame.f_locals.items()
            if isinstance(x, np.ndarray) and x is not known.get(name)
        }
        if at is not None and made and at not in shown:
            print(lines[at - first].rstrip())
            print(" " * 8 + "  ".join(f"{name} {list(x.shape)}" for name, x in made.items()))
            shown.add(at)
        known.update(made)

    def step(frame, event, result):
        nonlocal at
        report(frame)
        at = frame.f_lineno
        if event == "return" and isinstance(result, np.ndarray):
            print(lines[at - first].rstrip() + "\n" + " " * 8 + f"returned {list(result.shape)}")
        return step

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: step if frame.f_code is function.__code__ else None)
    try:
        return function(*args, **options)
    finally:
        sys.settrace(before)


tokens = np.array([3, 1, 4, 1, 5])  # [n]
logits = watch(gpt2, tokens, **params, n_head=2)

# %% [markdown]
# That is the whole pass. Now its lines, one after another.
#
# ## Embed
#
# `wte[tokens]` takes a row of `wte` for each token: what the token means. `wpe[past:m]` adds a row
# for each position: where it stands. The first token of a text is at position 0, and `past` is 0
# until lesson 3. Taking a row is the same as a product with a one-hot matrix; it only costs
# nothing:

# %%
onehot = np.eye(11)[tokens]  # [n, v]
print("equal:", np.array_equal(onehot @ params["wte"], params["wte"][tokens]))
x = params["wte"][tokens] + params["wpe"][:5]  # [n, d] + [n, d]
print("token 1 stands in two places; alike there:", np.array_equal(x[1], x[3]))

# %% [markdown]
# ## Layer norm
#
# Each block reads x through a layer norm (Ba et al. 2016, arXiv 1607.06450), which brings every
# token's d numbers to mean 0 and variance 1, so that no layer gets numbers of a size it has never
# seen. Then two learnt vectors, g and b, scale and shift them. The 1e-5 keeps a row of equal
# numbers from a division by 0.

# %%
print(inspect.getsource(layer_norm))
y = layer_norm(1000 * x + 5, np.ones(6), np.zeros(6))  # [n, d]
print("mean", np.abs(y.mean(axis=-1)).max().round(6), " variance", y.var(axis=-1).round(3))

# %% [markdown]
# ## Attention
#
# Up to here every token was alone. In attention, tokens read each other. Each token makes three
# vectors, by one product with `c_attn`: a *query* (what am I looking for?), a *key* (what do I
# have?), and a *value* (what do I tell?). A token compares its query with all keys, and takes a
# mean of the values, weighed by how well the keys fit (Vaswani et al. 2017, arXiv 1706.03762,
# section 3.2). Here is every line:

# %%
print(inspect.getsource(linear))
attn = params["blocks"][0]["attn"]
mask = attention_mask(5, 5, x)  # [n, n]
a = watch(attention, y, **attn, n_head=2, mask=mask)

# %% [markdown]
# `c_attn` makes 3d numbers for each token. Which is which? The first d are queries, of all heads
# one after another; then keys; then values. Give each number a name and follow it:

# %%
names = np.array([f"{kind}{h}{j}" for kind in "qkv" for h in range(2) for j in range(3)])  # [3d]
print(*names)
parts = names.reshape(1, 3, 2, 3)  # [n, 3d] -> [n, 3, h, e], for one token
for kind, part in zip(("query", "key", "value"), np.moveaxis(parts, (-3, -2), (0, -3))):
    print(kind, *[f"head {h}: {part[h, 0].tolist()}" for h in range(2)])

# %% [markdown]
# A *head* is attention of its own, on e of the d numbers; h heads can look for h different things.
# The axis of the heads stands before that of the tokens, so that `@` multiplies the last two axes,
# head by head: `[h, n, e] @ [h, e, n] -> [h, n, n]`. In its naive form, one query after the other,
# attention is:

# %%
def naive_attention(y, c_attn, c_proj, n_head):
    n, d = y.shape
    e = d // n_head
    q, k, v = np.split(linear(y, **c_attn), 3, axis=1)  # three times [n, d]
    out = np.zeros((n, d))
    for head in range(n_head):
        of = slice(head * e, (head + 1) * e)  # this head's columns
        for i in range(n):
            scores = np.array([q[i, of] @ k[j, of] / e**0.5 for j in range(i + 1)])  # [i + 1]
            weights = np.exp(scores) / np.exp(scores).sum()  # [i + 1]
            out[i, of] = weights @ v[: i + 1, of]  # [i + 1] @ [i + 1, e] -> [e]
    return out @ c_proj["w"]  # [n, d] @ [d, d]


print("equal:", np.allclose(naive_attention(y, **attn, n_head=2), a, rtol=1e-12, atol=1e-12))

# %% [markdown]
# **Why divide by the root of e?** A score is a sum of e products. If queries and keys are random
# numbers of size 1, it has variance e, and softmax of such numbers is nearly all on one key:

# %%
rng = np.random.default_rng(0)
for e in (4, 64, 1024):
    q, k = rng.normal(size=(2, 256, e))  # [n, e]
    scores = q @ k.T  # [n, n]
    largest = [softmax(s).max(axis=-1).mean() for s in (scores.copy(), scores / e**0.5)]
    print(
        f"e = {e:4}: scores of size {scores.std():4.1f}; largest of 256 weights, on average: "
        f"{largest[0]:.2f}, with the root {largest[1]:.2f}"
    )

# %% [markdown]
# **Softmax** makes weights of scores: positive, and 1 together. `exp` of a large score overflows;
# the same constant may be taken off all scores of a row, so take the largest. The function works
# in x's own memory, since the scores are the largest array of all:

# %%
print(inspect.getsource(softmax))
print(softmax(np.array([1000.0, 1001.0, -np.inf])).round(3))  # a score of -inf has weight 0

# %% [markdown]
# ## Masks: who reads whom
#
# A model that predicts the next token must not see it. So before the softmax a mask is added to
# the scores: 0 where token i may read token j, -inf where it may not.

# %%
print(inspect.getsource(attention_mask))


def draw(*masks):  # rows: queries; columns: keys
    for rows in zip(*[np.where(mask == 0, "x", ".") for mask in masks]):
        print("    ".join(" ".join(row) for row in rows))


print("causal         prefix of 3    window of 3")
draw(*[attention_mask(6, 6, x, **how) for how in ({}, {"prefix": 3}, {"window": 3})])

# %% [markdown]
# - **Causal**: token i reads tokens 0 to i. Each position of a text is a training example, and all
#   of them are computed at once.
# - **Prefix**: the first tokens, a question say, read each other in both directions; what follows
#   is causal. A question is all there before the answer begins, so why should its first word not
#   know its last? (T5, arXiv 1910.10683, section 3.2.1; GLM, 2103.10360; U-PaLM, 2210.11399.)
# - **Sliding window**: token i reads only the last w tokens, itself included. The work then grows
#   with n, not with its square. (Longformer, arXiv 2004.05150; MegaScale, 2402.15627, section
#   3.1.)
#
# Is it true? Do not trust a drawing. Change one token, and see which logits change:

# %%
def reads(n_layer, **how):  # -> [n, n] of x and .: does the logit of row i change with token j?
    params = init_params(config._replace(n_layer=n_layer), np.float64, seed=2)
    tokens, rows = np.array([3, 1, 4, 1, 5, 9, 2]), []  # [n]
    before = gpt2(tokens, **params, n_head=2, **how)  # [n, v]
    for j in range(7):
        other = np.where(np.arange(7) == j, 8, tokens)  # [n]
        rows.append((gpt2(other, **params, n_head=2, **how) != before).any(axis=-1))  # [n]
    return np.where(np.array(rows).T, 0.0, -np.inf)  # [n, n]


print("with one block\ncausal           prefix of 3      window of 3")
draw(reads(1), reads(1, prefix=3), reads(1, window=3))

# %% [markdown]
# What is drawn is what is read, to the last bit. In a deeper model a window reaches further: with
# a window of 2, what token 2 learnt of token 1 in the first block, token 3 can read from token 2
# in the second. After L blocks with a window w, a token knows of L(w - 1) tokens before it:

# %%
print("a window of 2\n1 block          2 blocks         4 blocks")
draw(*[reads(n_layer, window=2) for n_layer in (1, 2, 4)])

# %% [markdown]
# How much work does a mask save? Count the pairs that are left. (A plain product computes all
# scores and then throws the masked ones away; a kernel made for it, such as FlashAttention, skips
# them.)

# %%
n = 1024
masks = {"causal": {}, "prefix of 256": {"prefix": 256}, "window of 128": {"window": 128}}
for name, how in masks.items():
    left = int((attention_mask(n, n, x, **how) == 0).sum())
    print(f"{name:14} {left:9,} of {n * n:,} pairs, {left / n**2:4.0%}")
formulas = attention_pairs(n, causal=True), attention_pairs(n, window=128)
print("causal and window by formula:", *[f"{pairs:,}" for pairs in formulas])

# %% [markdown]
# ## Feed forward
#
# The other half of a block is a small network that every token goes through on its own: d numbers
# to 4d, a bend, and back to d. Most of a block's parameters are here, two thirds if d is large.
# The bend is GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415), in the form with tanh that GPT-2
# was trained with. It writes `x * x * x`, since NumPy takes much longer for `x**3`.

# %%
print(inspect.getsource(gelu))
print("gelu of -3 ... 3:", gelu(np.arange(-3.0, 4.0)).round(3))
hidden = watch(feed_forward, y, **params["blocks"][0]["mlp"])
weights = {name: w.size for name, w in flatten(params).items() if name.startswith("h.0.")}
mlp = sum(size for name, size in weights.items() if "mlp" in name)
total = sum(weights.values())
print(f"\n{mlp} of {total} parameters of our block, {mlp / total:.0%}")

# %% [markdown]
# ## Block
#
# Both halves do not replace x; they *add* to it. So x runs through the whole model as on a road,
# and each layer reads from it and writes to it. It is called the residual stream.

# %%
print(inspect.getsource(block))
out = watch(block, x, **params["blocks"][0], n_head=2, mask=mask)

# %% [markdown]
# `enter` and `leave` do nothing here. They are where devices will talk to each other, once a block
# is split over several (lesson 8), and the reason why the bias of `c_proj` is added so late: what
# attention returns may be only one device's part of a sum, and a bias must be added once.
#
# Without `ln_2` a block becomes MegaScale's parallel block: attention and feed forward read the
# same norm, and one `leave` is enough for both. It is another model, trained from the start as
# such; a trick for speed.
#
# ## Logits
#
# In the end one more layer norm, and a product with `wte.T`: how well does what the model has in
# mind for this position fit each token of the vocabulary? The same `wte` reads and writes; it is
# *tied*. Now you can say the whole pass in three lines:

# %%
x = params["wte"][tokens] + params["wpe"][:5]  # [n, d]
for p in params["blocks"]:
    x = block(x, **p, n_head=2, mask=mask)  # [n, d]
print("equal:", np.array_equal(layer_norm(x, **params["ln_f"]) @ params["wte"].T, logits))

# %% [markdown]
# ## A batch
#
# Several texts at once need one more axis in front, and not one line more: that is what "..." is
# for. If one text is shorter, fill it up *on the right*, with any token. No mask is needed for
# that: nobody reads what comes after.

# %%
short = np.array([2, 7, 1, 0, 0])  # [n]; the last two are padding
batch = gpt2(np.stack([tokens, short]), **params, n_head=2)  # [2, n] -> [2, n, v]
print("logits:", batch.shape)
print("the first text as alone: ", np.allclose(batch[0], logits, rtol=1e-12))
alone = gpt2(short[:3], **params, n_head=2)  # [3, v]
print("the second text as alone:", np.allclose(batch[1, :3], alone, rtol=1e-12))

# %% [markdown]
# ## How good is it? The loss
#
# Row t of the logits is a prediction of token t + 1. The loss is the mean of -log(probability of
# the token that came), in nats. A model that knows nothing gives each of v tokens 1/v, so its loss
# is log(v): a good check of any new training run. `exp(loss)` is called perplexity, and reads as
# "as unsure as among so many tokens".

# %%
tiny = Path(gpt_numpy.__file__).parent / "tiny"
trained, n_head = load_gpt2(tiny)
tokenizer = Tokenizer.from_file(tiny / "merges.txt")
text = (tiny / "held_out.txt").read_text(encoding="utf-8")  # not in its training text
ids = np.array(tokenizer.encode(text[:8000]))  # [n]
n_ctx, d = trained["wpe"].shape
shape = Config(d, n_head, len(trained["blocks"]), n_ctx, tokenizer.n_vocab)
print(f"log(v) = {np.log(shape.n_vocab):.2f}")
for name, p in (("untrained", init_params(shape)), ("trained", trained)):
    loss = held_out_loss(p, n_head, ids, n_ctx)
    print(f"{name:10} loss {loss:.1f}, as unsure as among {np.exp(loss):.0f} tokens")

# %% [markdown]
# ## Where the FLOPs go
#
# The same functions run on the arrays of a simulated device, which counts (lesson 6 says how), and
# which need have no numbers in them. So let GPT-2 read 1,024 tokens, and GPT-3 2,048, and compare
# the count with the formula:

# %%
rows = {}
for name in ("gpt2", "gpt3-175b"):
    c = model(name)
    device = Device(name)
    shapes = gpt2_shapes(c.n_vocab, c.n_ctx, c.n_embd, c.n_layer)
    weights = unflatten({name: device.empty(shape) for name, shape in shapes.items()})
    gpt2(device.empty(c.n_ctx, int), **weights, n_head=c.n_head)
    parts = forward_flops(c, batch=1)
    total = sum(parts.values())
    equal = device.matmul_flops == total
    print(f"{name}: {device.matmul_flops:,} FLOPs, as the formula says: {equal}")
    print(f"  for each token and parameter: {total / c.n_ctx / n_params(c):.2f}")
    rows[name] = {part: 100 * flops / total for part, flops in parts.items()}
show_svg(bars("Where the FLOPs of a forward pass go", rows, "%"), "flops by part")

# %% [markdown]
# About 2 FLOPs for each token and parameter: each weight is multiplied once and added once.
# Attention itself, `scores` and `values`, is the only part that grows with the square of the text;
# in a wide model it is small until texts get very long. Lesson 4 takes it from here.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. In `reads`, combine `prefix=3` with `window=2`. Does token 0 still read token 2? Does token 2
#    read token 0? (`draw(reads(1, prefix=3, window=2))`)
# 2. Set all of `wpe` to 0 and swap the first two tokens. With one block, do the logits of the
#    *last* token change? And with two? (`gpt2(..., last=True)`, `np.allclose`)
# 3. From which n on does attention (`scores` + `values`) take more than half of GPT-3's FLOPs?
#    (`forward_flops(model("gpt3-175b"), 1, seq=n)`)
