# %% [markdown]
# # 3. Writing text: sampling and the KV cache
#
# *30 minutes. Explains [sample.py](../../gpt_numpy/sample.py) (`probabilities`, `generate`) and
# the cache in [gpt2.py](../../gpt_numpy/gpt2.py) (`new_cache`, `past`).*
#
# After this lesson you can turn logits into the next token, and say what temperature, top-k and
# top-p each do to the choice; explain why keys and values can be kept, and what that saves, in
# FLOPs that you have counted; say how many bytes a cache needs; and say why a GPU that writes one
# text at a time is nearly idle.
#
# A GPT answers one question: which token may come next, and how likely is each? Text is written
# by asking again and again, each answer being added to the question.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

from pathlib import Path

import numpy as np

import gpt_numpy
from gpt_numpy.checkpoint import gpt2_shapes, load_gpt2, unflatten
from gpt_numpy.device import Device
from gpt_numpy.flops import Config, forward_flops, model
from gpt_numpy.gpt2 import attention_mask, gpt2, new_cache
from gpt_numpy.hardware import gpu
from gpt_numpy.sample import generate, probabilities
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import init_params
from lessons import bars, show_svg

# %% [markdown]
# ## From logits to a token
#
# Say the vocabulary has six words, and these are their logits. Softmax makes probabilities of
# them, and a random number picks one. Draw often, and you see the probabilities again:

# %%
words = ["the", "a", "my", "no", "blue", "xylophone"]
logits = np.array([3.0, 2.2, 1.5, 0.5, -1.0, -4.0])  # [v]
p = probabilities(logits)  # [v] -> [v]
drawn = np.random.default_rng(0).choice(len(p), p=p, size=10_000)  # [10000]
for word, chance, count in zip(words, p, np.bincount(drawn, minlength=len(p))):
    print(f"{word:10} {chance:6.1%}   drawn {count:5,} times in 10,000")

# %% [markdown]
# Now and then a draw comes out odd, and a text is made of hundreds of draws. All that is written
# after an odd word has to live with it. There are three handles.
#
# **Temperature** divides the logits before the softmax. Below 1 the likely gets likelier; above 1
# all become more alike; 0 means the likeliest token, always: *greedy*.

# %%
rows = {}
for temperature in (0, 0.5, 1, 2):
    p = probabilities(logits, temperature=temperature)  # [v]
    rows[f"temperature {temperature}"] = dict(zip(words, 100 * p))
    print(f"{temperature:4}", *[f"{word} {x:.1%}" for word, x in zip(words, p)], sep="  ")
show_svg(bars("What temperature does", rows, "%"), "temperature")

# %% [markdown]
# **Top-k** keeps the k likeliest tokens (Fan et al. 2018, arXiv 1805.04833), and **top-p** the
# fewest that have the probability p together (nucleus sampling; Holtzman et al. 2019, arXiv
# 1904.09751, section 3). The token that reaches p is kept, so at least one is. What is left is
# divided by its sum.

# %%
for how in ({"top_k": 2}, {"top_p": 0.9}, {"top_p": 0.5}, {"top_p": 0.9, "temperature": 2}):
    p = probabilities(logits, **how)  # [v]
    kept = [f"{word} {chance:.1%}" for word, chance in zip(words, p) if chance > 0]
    print(", ".join(f"{name} {value}" for name, value in how.items()) + ":", *kept, sep="  ")

# %% [markdown]
# The last line shows the order, which is a convention: first temperature, then top-k, then top-p.
# With temperature 2 more words are needed for 90 %.
#
# Why top-p, when there is top-k? Because a model is sometimes sure and sometimes not. This is how
# many tokens make up 90 % at 200 places of a text, for the small model that comes with the
# package:

# %%
tiny = Path(gpt_numpy.__file__).parent / "tiny"
params, n_head = load_gpt2(tiny)
tokenizer = Tokenizer.from_file(tiny / "merges.txt")
text = (tiny / "held_out.txt").read_text(encoding="utf-8")
ids = tokenizer.encode(text[:2000])[:200]  # [n]
logits = gpt2(ids, **params, n_head=n_head)  # [n] -> [n, v]
sizes = [np.count_nonzero(probabilities(row, top_p=0.9)) for row in logits]
print(f"the fewest {min(sizes)}, the median {np.median(sizes):.0f}, the most {max(sizes)}")

# %% [markdown]
# ## A text
#
# `generate` puts it together. Same seed, same text. Greedy text looks safe, but tends to go
# in circles, since the likeliest text is a dull one.

# %%
prompt = tokenizer.encode("It was")
settings = {
    "greedy": {"temperature": 0},
    "temperature 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "temperature 2": {"temperature": 2},
}
for name, how in settings.items():
    new = list(generate(params, n_head, prompt, 100, seed=1, **how))
    start = " ".join(tokenizer.decode(prompt + new[:26]).split())
    print(f"{name}: {len(set(new))} different tokens of 100\n  {ascii(start)[1:-1]}")

# %% [markdown]
# ## What is computed twice
#
# For each new token the model reads the whole text again, from its first word on. Must it? With a
# causal mask no token reads what comes after it. So nothing that was computed for a token changes
# when another one is added: its row in every layer stays what it was. And all that later tokens
# need of it are its key and its value in each block. Keep those, and only the new token has to go
# through the model. That is the *KV cache*.

# %%
config = Config(n_embd=64, n_head=4, n_layer=2, n_ctx=128, n_vocab=512)
small = init_params(config, np.float64, seed=0)
tokens = np.random.default_rng(1).integers(0, 512, 12)  # [n]

at_once = new_cache(**small, n_head=4)  # for each block [2, h, n_ctx, e]
logits = gpt2(tokens, **small, n_head=4, cache=at_once)  # [n] -> [n, v]
one_by_one = new_cache(**small, n_head=4)
rows = [
    gpt2(tokens[past : past + 1], **small, n_head=4, cache=one_by_one, past=past, last=True)
    for past in range(12)
]  # 12 times [v]
print("the cache of a block:", at_once[0].shape, "for keys and values, heads, positions, numbers")
print("logits are equal:", np.allclose(np.stack(rows), logits, rtol=1e-10))
filled = [np.stack(cache)[..., :12, :] for cache in (at_once, one_by_one)]  # [L, 2, h, n, e]
print("caches are equal:", np.allclose(*filled, rtol=1e-10))

# %% [markdown]
# `past` says how many tokens the cache has. It does three things, and each is a famous mistake if
# forgotten: the new tokens get the *positions* from `past` on; their keys and values go *behind*
# those that are there; and the mask is no longer square: a row for each new token, a column for
# each token so far. Here 3 tokens come after 5:

# %%
for row in attention_mask(3, 8, np.zeros(1)):  # [n, m]
    print(*np.where(row == 0, "x", "."))

# %% [markdown]
# All of it rests on "no token reads what comes after it". With a prefix mask that is not so, and
# the prefix has to come in one call:

# %%
cache = new_cache(**small, n_head=4)
try:
    gpt2(tokens[:3], **small, n_head=4, cache=cache, prefix=5)
except ValueError as error:
    print(error)

# %% [markdown]
# ## What it saves
#
# Put the model on a simulated device, which counts FLOPs (lesson 6). Shapes are enough, so there
# are no numbers in its arrays. Write one text (a batch of 1) of n tokens, with and without the
# cache:

# %%
def on_device(config, dtype="fp32"):
    device = Device("device")
    shapes = gpt2_shapes(config.n_vocab, config.n_ctx, config.n_embd, config.n_layer)
    with device.kind("weights"):
        weights = {name: device.empty(shape, dtype) for name, shape in shapes.items()}
    return device, {**unflatten(weights), "n_head": config.n_head}


device, on = on_device(config)
counts = {}
for n in (16, 32, 64, 128):
    device.reset_meters()
    for m in range(1, n + 1):
        gpt2(device.empty((1, m), int), **on, last=True)  # [1, m] -> [1, v]
    without = device.matmul_flops
    device.reset_meters()
    cache = new_cache(**on, batch=(1,))
    for past in range(n):
        gpt2(device.empty((1, 1), int), **on, cache=cache, past=past, last=True)  # [1, v]
    counts[n] = {"without": without, "with": device.matmul_flops}
    with_it = device.matmul_flops
    print(
        f"{n:3} tokens: {without / 1e6:6.1f} MFLOPs without the cache, "
        f"{with_it / 1e6:5.1f} with it, {without / with_it:4.1f} times less"
    )
rows = {f"{n} tokens, {how}": x / 1e6 for n in counts for how, x in counts[n].items()}
show_svg(bars("MFLOPs to write a text", rows), "with and without a cache")

# %% [markdown]
# Without the cache the work grows with the square of n; with it, writing is one pass over the
# text. This is not a way of speaking. Written one by one, n tokens cost *exactly* a forward pass
# over n tokens, of which each reads only itself and what comes before it:

# %%
for n, count in counts.items():
    formula = sum(forward_flops(config, batch=1, seq=n, causal=True).values())
    print(f"{n:3} tokens: counted {count['with']:,}, formula {formula:,}")

# %% [markdown]
# The tokens are the same, with the cache and without:

# %%
with_it, without = (
    list(generate(params, n_head, prompt, 40, seed=2, cached=cached)) for cached in (True, False)
)
print("equal:", with_it == without)

# %% [markdown]
# When the text gets longer than `n_ctx`, something has to go. The cache cannot just forget its
# first token: all others would move by one place, and with GPT-2's learnt positions every key and
# value would change. So `generate` drops the older half and reads the newer half again, once every
# `n_ctx / 2` tokens.
#
# ## What it costs: memory
#
# For every token the cache has a key and a value, d numbers each, in each block:
#
# ```text
# 2 * n_layer * n_embd * bytes of a number
# ```

# %%
for name in ("gpt2-xl", "gpt3-175b"):
    c = model(name)
    device, on = on_device(c, "bf16")
    weights = device.held
    cache = new_cache(**on)
    measured = device.held - weights
    token = 2 * c.n_layer * c.n_embd * 2
    print(
        f"{name:9} weights {weights / 1e9:6.1f} GB; cache of {c.n_ctx:,} tokens "
        f"{measured / 1e9:5.2f} GB = {c.n_ctx:,} * {token:,} bytes: {measured == c.n_ctx * token}"
    )
print(f"caches like GPT-3's that weigh as much as its weights: {weights / measured:.0f}")

# %% [markdown]
# A server that answers so many people at once has as many caches. Much of the craft of serving
# is about them: fewer keys and values than queries (grouped queries, arXiv 2305.13245), smaller
# numbers, windows, memory in pages (arXiv 2309.06180).
#
# ## What it does not save: bytes
#
# One new token needs all weights once. So a step reads every weight from memory, for 2 FLOPs with
# it. A GPU can do many more FLOPs in the time in which it reads a byte. Compare GPT-3 that reads a
# prompt with GPT-3 that writes the 1,024th token of one text, or of several at once:

# %%
a100 = gpu("a100")
print(f"an A100: {a100.peak / a100.memory_bandwidth:.0f} FLOPs in the time of one byte")

device, on = on_device(c, "bf16")  # GPT-3
for batch, n, past in ((1, c.n_ctx, 0), (1, 1, 1023), (8, 1, 1023), (64, 1, 1023)):
    cache = new_cache(**on, batch=(batch,))
    device.reset_meters()
    gpt2(device.empty((batch, n), int), **on, cache=cache, past=past, last=True)
    flops, nbytes = device.matmul_flops, device.bytes_read
    what = f"a prompt of {n:,} tokens" if n > 1 else f"one token each, {batch} texts"
    print(f"{what:26} {flops / 1e12:6.1f} TFLOPs, {flops / nbytes:5.1f} for each byte read")

# %% [markdown]
# Reading a prompt keeps a GPU busy; writing one token leaves it waiting for memory nearly all of
# the time. Texts that are written together share the reading of the weights, so serving many
# costs hardly more time than serving one, until the caches, which nobody shares, fill the memory.
# This is the *roofline* of lesson 4. And here is the bridge to the rest of the course: with the
# weights split over eight GPUs, each reads only an eighth of them (lesson 8).
#
# How fast can it be at best? A token needs at least the time to read the weights. In eight A100s
# at once:

# %%
seconds = weights / (8 * a100.memory_bandwidth)
compute = 2 * weights / 2 / (8 * a100.peak)  # 2 FLOPs for each weight of 2 bytes
print(f"reading the weights: {1e3 * seconds:.1f} ms, so {1 / seconds:.0f} tokens a second at most")
print(f"computing with them: {1e3 * compute:.2f} ms")

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. Does top-k = 1 give the same tokens as temperature 0? Always? (`probabilities([1.0, 3, 3],
#    top_k=1)` and `temperature=0`)
# 2. A prompt of 100 tokens is read in pieces of 10, with the cache. Does that take more FLOPs than
#    in one piece, fewer, or as many? Which pairs of tokens make the difference?
#    (`device.matmul_flops`, with `past=0, 10, 20, ...`)
# 3. GPT-3 with a window of 256 tokens: which of the figures above would change, if the cache kept
#    only what the window can read: FLOPs of a step, bytes of the cache, bytes of weights read?
#    (`forward_flops(c, 1, window=256)`, `c._replace(n_ctx=256)`)
