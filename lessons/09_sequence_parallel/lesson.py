# %% [markdown]
# # 9. Sequence parallelism and recomputation
#
# *40 minutes. Explains [parallel/sequence.py](../../gpt_numpy/parallel/sequence.py) (`enter`,
# `leave`, `reduce_partial`), `recompute` in [layers.py](../../gpt_numpy/layers.py), and
# `activation_bytes` in [flops.py](../../gpt_numpy/flops.py).*
#
# After this lesson you can say what a block holds for its backward pass, array by array, and how
# much of it tensor parallelism, sequence parallelism and recomputation leave; what each of them
# costs; which gradients are incomplete under sequence parallelism, and complete them; and put
# attention together from blocks of keys that lie on several ranks.
#
# Weights are not all that has to fit. Going backward, a layer needs what it has seen going
# forward, its *activations*, and so they are held from the one pass to the other. The paper of
# this lesson is [arXiv 2205.05198](https://arxiv.org/abs/2205.05198), by Korthikanti and others.
# Its formulas are for a block; here the meters say whether they are right.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import numpy as np

from gpt_numpy import layers
from gpt_numpy.checkpoint import flatten, gpt2_shapes, unflatten
from gpt_numpy.device import Device
from gpt_numpy.flops import Config, activation_bytes, layer_times, model
from gpt_numpy.gpt2 import attention_mask
from gpt_numpy.mesh import Mesh, StandIn, run
from gpt_numpy.parallel import sequence, tensor
from gpt_numpy.parallel.model import Layout, split_layers
from gpt_numpy.train import init_params
from lessons import bars, show_svg

# %% [markdown]
# ## What a block holds
#
# A layer returns its output and a function `back`, and what `back` needs its closure holds
# (lesson 5). So one can look: run the layers of a block one after another on a device, let go of
# all but their `back`s, and see how much more memory is held after each. The block is one of the
# paper's 22B model, with shapes but no numbers. The unit is `sbh` bytes: `s` tokens in each of
# `b` sequences, `h` = `n_embd`. An array `[n, d]` of 16-bit numbers is 2 of these units.

# %%
c, b = model("korthikanti-22b"), 4
s, h, a = c.n_ctx, c.n_embd, c.n_head
device = Device(0)
device.fused = True  # a layer is one kernel: what is born and dies inside is never in memory
names = {name: shape for name, shape in gpt2_shapes(1, 1, h, 1).items() if "h.0." in name}
p = unflatten({name: device.empty(shape, "bf16") for name, shape in names.items()})["blocks"][0]
mask = attention_mask(s, s, p["ln_1"]["g"])  # [s, s]
ledger = [("", device.held)]  # what is held after each layer, but for what goes on to the next
x = device.empty((s * b, h), "bf16")  # [n, d], the block's input

y, back_ln_1 = layers.layer_norm(x, p["ln_1"])  # [n, d]
(qkv,), back_c_attn = layers.linear(y, p["attn"]["c_attn"])  # [n, 3d]
del y
ledger.append(("ln_1: x, normed; c_attn: its input", device.held - x.nbytes - qkv.nbytes))
z, back_attend = layers.attend(qkv, mask, a)  # [n, d]
del qkv
ledger.append(("attention: q, k, v and weights [b, a, s, s]", device.held - x.nbytes - z.nbytes))
out, back_c_proj = layers.linear_sum((z,), p["attn"]["c_proj"])  # [n, d]
del z
x = x + out  # [n, d]
del out
ledger.append(("c_proj: its input", device.held - x.nbytes))
y, back_ln_2 = layers.layer_norm(x, p["ln_2"])  # [n, d]
(hidden,), back_c_fc = layers.linear(y, p["mlp"]["c_fc"])  # [n, 4d]
del y
ledger.append(("ln_2: x, normed; c_fc: its input", device.held - x.nbytes - hidden.nbytes))
z, back_gelu = layers.gelu(hidden)  # [n, 4d]
del hidden
ledger.append(("gelu: its input", device.held - x.nbytes - z.nbytes))
out, back_mlp = layers.linear_sum((z,), p["mlp"]["c_proj"])  # [n, d]
del z
x = x + out  # [n, d], the block's output, which the next block holds if anyone does
del out
ledger.append(("c_proj: its input", device.held - x.nbytes))

sbh = s * b * h
for (_, before), (text, after) in zip(ledger, ledger[1:]):
    print(f"{text:45} {(after - before) / sbh:7.3f} sbh")
held = ledger[-1][1] - ledger[0][1]
print(f"{'all':45} {held / sbh:7.3f} sbh = {held:,} bytes")

# %% [markdown]
# The largest by far are the attention weights: `a` matrices of `[s, s]` for each of the `b`
# sequences, with 2 bytes a number, `2as²b`. The rest is 32 units: what 16 arrays `[n, d]` take.
#
# The paper has `34sbh + 5as²b` (its Table 2, first row). Its model uses dropout, which has to hold
# which numbers it has dropped, one byte each: two masks of `sbh`, and for the attention weights a
# mask and the result, `as²b` and `2as²b`. This package has no dropout, like most large models
# today. Without it `activation_bytes` says `32sbh + 2as²b`. Does it agree?

# %%
paper = activation_bytes(s, b, h, a)
formula = activation_bytes(s, b, h, a, dropout=False)
print(f"with dropout    {paper:,} bytes")
print(f"without         {formula:,} bytes")
print(f"measured, less the formula: {held - formula:,} bytes = {(held - formula) // (s * b)}"
      " bytes for each token")  # fmt: skip

# %% [markdown]
# Each of the two layer norms holds one number for each token, 1 over its standard deviation. The
# paper leaves these out, as too small to matter (section 4.1).
#
# ## What tensor parallelism leaves
#
# From here on one function does it: run a block of the package, split as a layout says, and see
# what its `back` alone still holds. (`StandIn` is a group whose other ranks are taken to do the
# same as this one; see lesson 8.)

# %%
def run_block(layout, attend=layers.attend):
    """Bytes held by one rank for backward; FLOPs; bytes sent forward and backward."""
    device = Device(0)
    device.fused = True
    tp, parts = StandIn("tp", range(layout.tp), 0, device), {}
    for name, shape in names.items():
        axis = tensor.split_axis(name)
        shape = [m // tp.size if i == axis else m for i, m in enumerate(shape)]
        parts[name] = device.empty(shape, "bf16")
    p = unflatten(parts)["blocks"][0]
    mask = attention_mask(s, s, p["ln_1"]["g"])  # [s, s]
    before, n = device.held, s * b // (tp.size if layout.sequence_parallel else 1)
    x = device.empty((n, h), "bf16")  # [n, d], or [n/tp, d] if sequence parallel
    y, back = split_layers(layout, tp, c.n_vocab, attend).block(x, p, mask, a // tp.size)
    del x, y
    held, forward = device.held - before, device.sent["tp"]
    back(device.empty((n, h), "bf16"))
    return held, device.matmul_flops, forward, device.sent["tp"] - forward


one, two = run_block(Layout(tp=1))[0], run_block(Layout(tp=2))[0]  # W + S and W + S/2
whole, rows = 2 * two - one, {}  # W
for t in (1, 2, 4, 8, 16):
    held, *_ = run_block(Layout(tp=t))
    rest = held - activation_bytes(s, b, h, a, t, dropout=False)
    rows[f"tp {t}"] = {"split": (held - whole) / 1e9, "whole on every rank": whole / 1e9}
    print(f"tp {t:2}: {held / 1e9:.3f} GB, {held / sbh:6.3f} sbh; {rest} bytes above the formula")
show_svg(bars("A block of the 22B model, tensor parallel", rows, "GB"), "tensor parallel memory")

# %% [markdown]
# `8sbh + (24sbh + 2as²b) / t`: what lies between f and g, heads and hidden units, is split. The
# 8 units outside are whole on every rank: for each of the two norms what it holds and what it
# gives. (With dropout, 10.) More ranks do not help: of 16, each holds mostly the same.
#
# ## Splitting the tokens, too
#
# Layer norms, residual sums and dropout work on each token alone. So outside of f and g the
# *tokens* can be split: rank `r` has the rows number `r n/t` and following of `[n, d]`. Before the
# columns-split matrices all tokens are needed, an all-gather; after the rows-split ones, each
# rank needs the sums of its own tokens only, a reduce-scatter:
#
# | | forward | backward |
# | --- | --- | --- |
# | `enter` | all-gather | reduce-scatter: the gradient is a partial sum |
# | `leave` | reduce-scatter: `y` is a partial sum | all-gather |
#
# Again they are conjugate. Here is what they do to a row per rank, in both directions.

# %%
def both_ways(rank, pairs):
    pair, put = pairs(rank.tp), rank.device.put
    one, all_rows = put([1.0 + rank.rank]), put([1.0, 2.0, 3.0])  # [n/tp], [n]
    first, second = (one, all_rows) if pairs is sequence.enter else (all_rows, one)
    return pair.forward(first).numpy().tolist(), pair.backward(second).numpy().tolist()


for pairs in (sequence.enter, sequence.leave):
    for rank, (forward, backward) in enumerate(run(both_ways, Mesh(tp=3), pairs)):
        print(f"{pairs.__name__:5} rank {rank}: forward {forward!s:17} backward {backward}")

# %% [markdown]
# Nothing else changes: the same `block` runs with the other pair (section 4.2.2 of the paper).
# What does it cost? An all-reduce *is* a reduce-scatter and an all-gather (lesson 6), so the two
# halves have only been moved apart. The unit below is what half an all-reduce of `[n, d]` sends,
# `(t - 1) / t` of its bytes:

# %%
unit = 2 * sbh * 7 / 8
for sp in (False, True):
    held, _, forward, backward = run_block(Layout(tp=8, sequence_parallel=sp))
    text = "sequence parallel" if sp else "tensor parallel"
    print(f"{text:18} sent forward {forward / unit:.0f}, backward {backward / unit:.0f} units; "
          f"{held / sbh:.3f} sbh held")  # fmt: skip

# %% [markdown]
# Forward it is the same. Backward there are two more: `linear` holds the `[n/t, d]` of its own
# tokens, not the `[n, d]` that it has gathered, and so it gathers again when it needs them for
# the gradient of its weights. Without that the gathered arrays would be whole on every rank, and
# little would be saved. (The paper hides this all-gather behind the computation of another
# gradient.)
#
# ## Recomputation
#
# The other way to hold less is to compute twice. Since a layer's closure holds what it needs, the
# whole technique is to drop the closure, and to make it again when the gradient arrives:

# %%
def again(layer):
    def run(*inputs):
        y, _ = layer(*inputs)  # its `back` is dropped, and with it all that it holds

        def back(dy):
            _, new_back = layer(*inputs)
            return new_back(dy)

        return y, back

    return run


device = Device(0)
device.fused = True
qkv, mask = device.empty((s, 3 * h // 8), "bf16"), device.empty((s, s), "bf16")  # [n, 3d/tp]
before = device.held
for text, attend in {"attend": layers.attend, "attend, again": again(layers.attend),
                     "layers.recompute": layers.recompute(layers.attend)}.items():  # fmt: skip
    y, back = attend(qkv, mask, a // 8)  # [n, d/tp]
    held = device.held - before - y.nbytes
    print(f"{text:16} holds {held / 1e6:6.1f} MB besides its input")
    del y, back

# %% [markdown]
# `layers.recompute` is this function, in fewer lines.
#
# *Full* recomputation does this to whole blocks, and so a block holds its input, `2sbh`, and every
# block is run forward twice. *Selective* recomputation (the paper's section 5) does it to that
# one layer that holds most and computes least: from queries, keys and values to what the heads
# give. The `as²b` go, and two small products are done again. Here are all rows of the paper's
# Table 2, as far as the package has them: measured, and by the formula.

# %%
print("8 ranks                             measured        formula   1/std  more FLOPs")
rows, flops = {}, {}
for recompute in ("none", "selective", "full"):
    for sp in (False, True):
        layout = Layout(tp=8, sequence_parallel=sp, recompute=recompute)
        held, flops[recompute], *_ = run_block(layout)
        formula = activation_bytes(s, b, h, a, 8, sp, recompute, dropout=False)
        more = flops[recompute] / flops["none"] - 1
        text = f"{'tensor + sequence' if sp else 'tensor'}, {recompute}"
        rows[text] = held / 1e6
        print(f"{text:28} {held:14,} {formula:14,} {held - formula:7,} {more:8.1%}")
show_svg(bars("A block of the 22B model on 8 ranks", rows, "MB"), "activation memory")

# %% [markdown]
# Counted equals formula, to the byte, but for the norms' `1/std`. And the two techniques need each
# other: sequence parallelism alone leaves the scores, selective recomputation alone leaves what
# every rank has whole. Together they leave a fraction of it, for a small part of the price of full
# recomputation. How much, by the formula?

# %%
for dropout in (False, True):
    none = activation_bytes(s, b, h, a, 8, dropout=dropout)
    both = activation_bytes(s, b, h, a, 8, True, "selective", dropout=dropout)
    full = activation_bytes(s, b, h, a, 8, recompute="full", dropout=dropout)
    print(f"{'with' if dropout else 'no'} dropout: tensor parallelism alone holds "
          f"{none / both:.1f} times what both leave, and {none / full:.1f} times what full "
          "recomputation leaves")  # fmt: skip

# %% [markdown]
# And in seconds? The paper's Table 4 has the times of this very block on A100s, in milliseconds.
# (`layer_times` reads it from the package's file of published figures.)

# %%
for row in layer_times():
    overhead = f"{row.overhead_pct:+.0f} %" if row.overhead_pct is not None else ""
    print(f"{row.experiment:24} forward {row.forward_ms:4}  backward {row.backward_ms:4}  "
          f"both {row.combined_ms:4}  {overhead}".rstrip())  # fmt: skip

# %% [markdown]
# Selective recomputation costs more time than FLOPs, since the products that it repeats are small
# and a softmax between them waits for memory. FlashAttention
# ([arXiv 2205.14135](https://arxiv.org/abs/2205.14135)) computes the scores again in any case,
# tile by tile, and never holds them: it is selective recomputation inside one kernel.

# %%
flash, *_ = run_block(Layout(tp=8, sequence_parallel=True), layers.flash_attend)
selective, *_ = run_block(Layout(tp=8, sequence_parallel=True, recompute="selective"))
print("flash attention and selective recomputation hold the same:", flash == selective)

# %% [markdown]
# ## Gradients that are not complete
#
# The gain of a layer norm is on every rank. Its gradient is a sum over tokens, and a rank has
# seen only its own. Say there are four tokens, whose terms are 1, 2, 3 and 4:

# %%
terms = np.array([1.0, 2.0, 3.0, 4.0])  # [n]
first, second = np.split(terms, 2)  # two of [n/tp]
mean = (first.sum() + second.sum()) / 2
print(f"rank 0 has {first.sum():.0f}, rank 1 has {second.sum():.0f}; the gradient is "
      f"{terms.sum():.0f}, and the mean of what the ranks have {mean:.0f}")  # fmt: skip

# %% [markdown]
# If nobody adds them up, forward pass and loss are still right. But each rank's optimizer moves
# its own copy its own way, and the copies drift apart, slowly. (This happened: see Megatron-LM's
# [issue 443](https://github.com/NVIDIA/Megatron-LM/issues/443).) Taking the mean is wrong, too:
# further tokens are further terms of the sum.
#
# Whole on every rank, and used on its own tokens alone, are: all gains and biases of norms; the
# biases of the `c_proj`s, which are added after `leave`; and the position embedding. What is split
# has seen all tokens, since `enter` has gathered them. `reduce_partial` sums the first and leaves
# the second alone. Let us look at all gradients of a small model: are they one device's?

# %%
small = Config(n_embd=8, n_head=4, n_layer=2, n_ctx=6, n_vocab=37)
rng = np.random.default_rng(0)
params = flatten(init_params(small, np.float64, seed=1))
params = {name: w + 0.2 * rng.standard_normal(w.shape) for name, w in params.items()}
tokens, targets = rng.integers(0, small.n_vocab, (2, 4, small.n_ctx))  # two of [b, s]


def gradients(rank, sequence_parallel, reduce):
    tp, put = rank.tp, rank.device.put
    parts = {name: put(tensor.split(name, w, tp.size)[tp.rank]) for name, w in params.items()}
    split = split_layers(Layout(tp=tp.size, sequence_parallel=sequence_parallel), tp, 37)
    how = put(targets), targets.size, small.n_head // tp.size, split
    loss, back = layers.gpt2(put(tokens), unflatten(parts), *how)  # []
    grads = flatten(back()[1])
    if reduce:
        grads = sequence.reduce_partial(grads, tp)
    return float(loss.numpy()), {name: g.numpy() for name, g in grads.items()}


((loss, right),) = run(gradients, Mesh(tp=1), False, False)
print(f"one device:               loss {loss:.12f}, ln_f gain {right['ln_f.weight'][0]:+.6f}")
for reduce in (False, True):
    results = run(gradients, Mesh(tp=2), True, reduce)
    wrong = [name for name, g in right.items()
             if any(abs(grads[name] - part).max() > 1e-12 for (_, grads), part
                    in zip(results, tensor.split(name, g, 2)))]  # fmt: skip
    gains = ", ".join(f"{grads['ln_f.weight'][0]:+.6f}" for _, grads in results)
    print(f"{'reduce_partial:' if reduce else 'two ranks, nothing summed:':25} "
          f"loss {results[0][0]:.12f}, ln_f gain {gains}; {len(wrong)} of {len(right)} wrong")
    for name in sorted({name.split(".", 2)[-1] if "h." in name else name for name in wrong}):
        print("   ", name)

# %% [markdown]
# Those are the ones that were named above, of both blocks, and `reduce_partial` leaves none.
#
# ## Attention in pieces
#
# One thing is still not split by tokens: attention itself, which gathers them all, and of which a
# rank has some heads. For very long texts that is too much for any GPU. Can ranks share one head,
# each with some of the *keys*? A softmax needs all of them: its denominator is a sum over keys.
# But so was the loss of lesson 8, and the answer is the same. Each block of keys gives two things,
# the output by its own softmax, and the logarithm of its sum of exponentials:

# %%
def attend_to(q, k, v, hidden=False):  # [r, e], [m, e], [m, e] -> [r, e], [r]
    scores = q @ k.T * q.shape[-1] ** -0.5  # [r, m]
    scores = np.where(hidden, -np.inf, scores)  # [r, m]
    top = scores.max(axis=-1, keepdims=True)  # [r, 1]
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))  # [r, m]
    total = e.sum(axis=-1, keepdims=True)  # [r, 1]
    out = e @ v / np.where(total > 0, total, 1)  # [r, e], 0 where all keys are hidden
    with np.errstate(divide="ignore"):
        return out, (top + np.log(total))[:, 0]


one = np.ones((1, 1))  # [r, e]; a query of 1, and so scores are keys
first = attend_to(one, 0 * one, 4 * one)
second = attend_to(one, np.log(3) * one, 8 * one)
both = attend_to(one, np.log([[1], [3]]), np.array([[4], [8]]))
for text, (out, lse) in {"key 0": first, "key log 3": second, "both": both}.items():
    print(f"{text:10} out {out[0, 0]:.4f}, lse {lse[0]:.4f}")

# %% [markdown]
# The second key's exponential is three times the first one's, so the output is 1/4 of the first
# value and 3/4 of the second. The mean of the two outputs, 6, knows nothing of that. What weighs a
# block is `exp(lse)`, which says how much of all exponentials it has:
#
# ```text
# lse = log(exp(lse1) + exp(lse2))
# out = exp(lse1 - lse) out1 + exp(lse2 - lse) out2
# ```
#
# To write that function is one of the exercises. Four ranks can then do attention over a text of
# which each has a quarter: queries stay, and keys and values travel around the ring, as in
# lesson 6. This is ring attention ([arXiv 2310.01889](https://arxiv.org/abs/2310.01889)), and no
# rank ever has more than a quarter of anything. Forward only, and in NumPy, to keep it short:

# %%
def merge(out1, lse1, out2, lse2):  # [r, e], [r], [r, e], [r] -> [r, e], [r]
    lse = np.logaddexp(lse1, lse2)  # [r]
    return np.exp(lse1 - lse)[:, None] * out1 + np.exp(lse2 - lse)[:, None] * out2, lse


q, k, v = rng.standard_normal((3, 12, 5))  # three of [n, e]


def ring_attention(rank):
    tp = rank.tp
    size, start = len(q) // tp.size, tp.rank * len(q) // tp.size  # of this rank's tokens
    mine = np.arange(start, start + size)  # [n/tp]
    keys, values, owner = k[mine], v[mine], tp.rank  # each [n/tp, e]
    out, lse = np.zeros((size, 5)), np.full(size, -np.inf)  # [n/tp, e], [n/tp]
    for step in range(tp.size):
        where = owner * size + np.arange(size)  # [n/tp], the keys' places
        hidden = where > mine[:, None]  # [n/tp, n/tp]; causal
        out, lse = merge(out, lse, *attend_to(q[mine], keys, values, hidden))
        if step < tp.size - 1:
            sent = tp.isend(np.stack([keys, values]), (tp.rank + 1) % tp.size)
            keys, values = tp.recv((tp.rank - 1) % tp.size)
            sent.wait()
            owner = (owner - 1) % tp.size
    return out


places = np.arange(12)  # [n]
whole, _ = attend_to(q, k, v, hidden=places > places[:, None])  # [n, e]
mesh = Mesh(tp=4)
parts = run(ring_attention, mesh)
print("equal to attention over all keys:", np.allclose(np.concatenate(parts), whole, 0, 1e-12))
print(f"bytes sent by a rank: {mesh.devices[0].sent['tp']} = 3/4 * {k.nbytes + v.nbytes}, "
      "of keys and values")  # fmt: skip

# %% [markdown]
# A rank whose queries come before all keys of a block gets `out` 0 and `lse` minus infinity for
# it, and the merge gives it a weight of `exp(-inf)`, which is 0. No special case is needed.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. From which sequence length on do a block's scores take more memory than all the rest, on one
#    rank and on eight? (`activation_bytes` with `recompute="none"` and `"selective"`; `h` and `a`
#    as above.)
# 2. *Without* sequence parallelism, somebody calls `reduce_partial` all the same, to be safe.
#    Which gradients are wrong, and by how much? (`run(gradients, Mesh(tp=2), False, True)`)
# 3. In `ring_attention` the first rank needs no keys but its own, the last one those of all. How
#    many of the 16 calls of `attend_to` are for nothing? (`hidden.all()`) What does that mean for
#    how long the ranks wait for each other?
