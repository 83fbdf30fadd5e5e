# %% [markdown]
# # 4. FLOPs: what a model costs, and what share of the hardware it gets
#
# *35 minutes. Explains [flops.py](../../gpt_numpy/flops.py) (`forward_flops`, `training_flops`,
# `CONVENTIONS`, `mfu`, `published_runs`), the meters of [device.py](../../gpt_numpy/device.py) and
# [hardware.py](../../gpt_numpy/hardware.py).*
#
# After this lesson you can count the FLOPs of a model by running it; say when "6 FLOPs per
# parameter and token" holds and when it does not; tell from a roofline whether an operation waits
# for arithmetic or for memory; and recompute the MFU of a published run from its step time, in the
# convention of its paper and in others.
#
# A paper reports 55.2 % of the hardware's peak, and 6.34 seconds a step. Is that good? Is it even
# the same statement twice? Such questions need a count of the work that has to be done. It is not
# hard to count: a GPT is a handful of matrix products.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

import numpy as np

from gpt_numpy import flops, layers
from gpt_numpy.checkpoint import gpt2_shapes, unflatten
from gpt_numpy.device import Device
from gpt_numpy.gpt2 import attention_mask, gpt2
from gpt_numpy.hardware import GPUS, gpu
from lessons import bars, show_svg

# %% [markdown]
# ## One product
#
# Each number in `y = x @ w` is a sum of products. With `x` of shape `[4, 3]` and `w` of
# `[3, 5]` there are 4 * 5 of them, each of 3 multiplies and 3 adds (the first one is added to
# zero). A multiply and an add are two FLOPs, *floating-point operations*; FLOP/s, with a slash,
# are how many of them are done in a second.

# %%
device = Device()
x = device.put(np.ones((4, 3)))  # [n, d_in]
w = device.put(np.ones((3, 5)))  # [d_in, d_out]
y = x @ w  # [4, 3] @ [3, 5] -> [4, 5]
print("counted by the device:", device.matmul_flops)
print("by the formula 2 n d_in d_out:", flops.linear_flops(n=4, d_in=3, d_out=5))
print("for each row of x and each number in w:", device.matmul_flops / len(x) / w.size)

# %% [markdown]
# That last line is worth keeping: **a row that meets a matrix costs two FLOPs for each number in
# it.** A row of activations is a token, a number in the matrix is a parameter.
#
# ## A whole model, counted by running it
#
# A device counts the same whether its arrays have numbers or only shapes
# ([lesson 6](../06_devices/README.md)). So we run the package's forward pass, unchanged, on GPT-2
# and on GPT-3 without their weights.


# %%
def on_shapes(config):
    """A device, and on it a model that has shapes and no numbers."""
    device, sizes = Device(), (config.n_vocab, config.n_ctx, config.n_embd, config.n_layer)
    weights = {name: device.empty(shape, "bf16") for name, shape in gpt2_shapes(*sizes).items()}
    return device, unflatten(weights)


for name in ("gpt2", "gpt3-175b"):
    config = flops.model(name)
    device, params = on_shapes(config)
    gpt2(device.empty((1, config.n_ctx), int), **params, n_head=config.n_head)
    formula = sum(flops.forward_flops(config, batch=1).values())
    print(f"{name}, {config.n_ctx:,} tokens")
    print(f"  matmuls, counted      {device.matmul_flops:,}")
    print(f"  matmuls, closed form  {formula:,}")
    print(f"  all other operations  {device.other_flops / device.matmul_flops:.2%} of that")

# %% [markdown]
# The closed form is exact, and what is not a matrix product hardly counts. So by agreement it is
# not counted, in any of the papers below. (It takes its time all the same; the roofline will show
# why.)
#
# Where do a token's FLOPs go? To the matrices of attention (`c_attn`, `c_proj`) and of the MLP; to
# two products that have *no* parameters, each query with each key (scores) and each weight with
# each value; and to the head, which makes logits of the last activations.


# %%
def in_parts(config, seq=None):
    """Forward FLOPs per token, by what they are for."""
    seq = config.n_ctx if seq is None else seq
    parts = {part: f / seq for part, f in flops.forward_flops(config, 1, seq).items()}
    return {
        "c_attn, c_proj": parts["qkv"] + parts["proj"],
        "MLP": parts["mlp"],
        "scores, values": parts["scores"] + parts["values"],
        "head": parts["head"],
    }


print(f"{'':12} {'FLOPs/token':>16}", *[f"{part:>15}" for part in in_parts(config)])
for name in ("gpt2", "gpt3-small", "gpt3-xl", "gpt3-175b"):
    parts = in_parts(flops.model(name))
    total = sum(parts.values())
    print(f"{name:12} {total:16,.0f}", *[f"{part / total:15.1%}" for part in parts.values()])

# %% [markdown]
# ## Six FLOPs per parameter and token
#
# Training runs the layers backward, too. Backward, each product becomes two of the same size
# ([lesson 5](../05_backward/README.md) shows them), so training costs three forward passes.
# Counted:

# %%
config = flops.model("gpt3-175b")
device, params = on_shapes(config)
ids = device.empty((1, config.n_ctx), int)  # [b, s]
loss, back = layers.gpt2(ids, params, ids, ids.size, config.n_head)
forward = device.matmul_flops
back()
print(f"forward {forward:,}, backward {device.matmul_flops - forward:,} FLOPs")
print("equal to flops.training_flops:", device.matmul_flops == flops.training_flops(config, 1))

n = flops.n_params(config, wpe=False)
each = device.matmul_flops / ids.size / n
print(f"{n:,} parameters (without wpe): {each:.3f} FLOPs for each, and each token")

# %% [markdown]
# Two FLOPs forward, four backward: **6N**, where N is the number of parameters
# ([arXiv 2001.08361](https://arxiv.org/abs/2001.08361), section 2.1, which leaves the embeddings
# out). One multiplication, and one knows what a training run costs. GPT-3 read 300 billion tokens
# ([arXiv 2005.14165](https://arxiv.org/abs/2005.14165), Table 2.1):

# %%
run = 6 * n * 300e9
print(f"{run:.2e} FLOPs: {run / gpu('a100').peak / 86400:,.0f} days of one A100 at its peak")

# %% [markdown]
# N is without the position embedding `wpe`, which is only looked up and added. The token
# embedding `wte` is looked up as well, and that costs nothing; but it is also the head, which is a
# product, so it counts once. (Looking up a row is *not* a product with a one-hot matrix.)
#
# ## Where 6N bends
#
# 6N knows no sequence length. But every query meets every key. For one token and layer, forward,
# the matrices take `24 h^2` FLOPs, scores and values `4 s h`, where h is `n_embd` and s the
# sequence. The quotient is `s / 6h`: at `s = 6h` they are equal.

# %%
names = ("gpt2", "gpt3-175b")
print(f"{'sequence':>9}", *[f"{name:>16}" for name in names])
for seq in (512, 2048, 8192, 32768, 131072):
    cells = []
    for name in names:
        config = flops.model(name)._replace(n_ctx=seq)
        cells.append(flops.training_flops(config, 1) / seq / flops.n_params(config, wpe=False))
    print(f"{seq:9,}", *[f"{cell:14.1f} N" for cell in cells])
print(f"{'s = 6h':>9}", *[f"{6 * flops.model(name).n_embd:16,}" for name in names])

rows = {}
for name, seq in [("gpt2", 1024), ("gpt2", 8192), ("gpt3-175b", 2048), ("gpt3-175b", 131072)]:
    parts = in_parts(flops.model(name), seq)
    total = sum(parts.values())
    rows[f"{name}, s = {seq:,}"] = {part: 100 * f / total for part, f in parts.items()}
show_svg(bars("Where the FLOPs of a token go", rows, "%"), "flops by part")

# %% [markdown]
# A wide model can read long texts before attention hurts; a narrow one cannot.
#
# There is a second bend. A causal mask hides half of the scores. Plain attention computes them all
# and then throws half away; a kernel that works in tiles, FlashAttention
# ([arXiv 2205.14135](https://arxiv.org/abs/2205.14135)), can skip what is hidden. The package has
# both, so count:


# %%
def attention(attend, s, h=1024, n_head=8, **window):
    device = Device()
    qkv = device.empty((s, 3 * h), "bf16")  # [n, 3d]
    attend(qkv, attention_mask(s, s, qkv, **window), n_head, **window)
    return device.matmul_flops


print("of the square's FLOPs    causal tiles    with a window of 512")
for s in (512, 2048, 8192):
    square = attention(layers.attend, s)
    causal = attention(layers.flash_attend, s) / square
    window = attention(layers.flash_attend, s, window=512) / square
    print(f"{s:12,} tokens {causal:17.1%} {window:23.1%}")

# %% [markdown]
# So "the FLOPs of this model" is a matter of agreement: 6N, or with the whole square, or with half
# of it. Remember that until the end of the lesson.
#
# ## The roofline: arithmetic or memory?
#
# A GPU has two speeds: FLOPs per second, and bytes per second from its memory. Their quotient says
# how many FLOPs it can do in the time in which a byte arrives.

# %%
print(f"{'':12} {'peak, TFLOP/s':>14} {'memory, TB/s':>13} {'FLOPs per byte':>15}")
for g in GPUS.values():
    ridge = g.peak / g.memory_bandwidth
    print(f"{g.name:12} {g.peak / 1e12:14,.1f} {g.memory_bandwidth / 1e12:13.2f} {ridge:15.0f}")

# %% [markdown]
# An operation has such a number, too, its *arithmetic intensity*: FLOPs over the bytes that it
# reads and writes. Below the GPU's number, arithmetic waits for memory, and the most that can be
# reached is intensity times bandwidth; above it, the peak. Drawn over the intensity this looks
# like a roof, hence *roofline* ([Williams, Waterman and
# Patterson, 2009](https://doi.org/10.1145/1498765.1498785)). A device meters both, so we run
# operations of GPT-3's size and divide.


# %%
def intensity(function, *shapes, fused=()):
    device = Device()
    device.fused = fused
    function(*[device.empty(shape, "bf16") for shape in shapes])
    done = device.matmul_flops + device.other_flops
    return done / (device.bytes_read + device.bytes_written)


def norm(x, g, b):  # [n, d], [d], [d] -> [n, d]
    return layers.layer_norm(x, {"g": g, "b": b})


h = flops.model("gpt3-175b").n_embd
found = {}
for n in (1, 16, 128, 2048):
    found[f"product, n = {n}"] = intensity(np.matmul, (n, h), (h, 4 * h))
for fused in ("", ", fused"):
    found["layer norm" + fused] = intensity(norm, (2048, h), h, h, fused=fused and {"layer_norm"})
    found["gelu" + fused] = intensity(layers.gelu, (2048, 4 * h), fused=fused and {"gelu"})

ridge = gpu("a100").peak / gpu("a100").memory_bandwidth
share = {name: 100 * min(1, i / ridge) for name, i in found.items()}
for name, i in found.items():
    limit = "memory" if i < ridge else "arithmetic"
    print(f"{name:18} {i:7.1f} FLOPs/byte, {share[name]:5.1f} % of the peak at most, by {limit}")
show_svg(bars("At most, of an A100's peak", share, "%"), "roofline")

# %% [markdown]
# Three things to take from it:
#
# - **Few tokens, few FLOPs.** With one token (generating, [lesson 3](../03_generate/README.md))
#   each weight is read to be used once: one FLOP per byte. With n tokens it is used n times.
#   Training, with thousands of tokens in a micro-batch, is where a GPU can be near its peak.
# - **What is not a product waits for memory.** It has a tiny share of the FLOPs, and a larger one
#   of the time: one reason why no program reaches 100 %.
# - **Fusing** operations into one kernel saves no FLOP. It saves bytes: what is between them never
#   goes to memory. MegaScale's "efficient operators"
#   ([arXiv 2402.15627](https://arxiv.org/abs/2402.15627), section 3.3) are that.
#
# ## MFU: the share of the peak that a training run makes
#
# *Model FLOPs utilisation* ([arXiv 2204.02311](https://arxiv.org/abs/2204.02311), section 4.1 and
# appendix B) is the FLOPs that the *model needs* in a step, over those that the GPUs could do in
# the time that the step took. Of a published run with 175 billion parameters
# ([arXiv 2205.05198](https://arxiv.org/abs/2205.05198), Table 5):

# %%
a100, runs = gpu("a100"), {run.id: run for run in flops.published_runs()}
run = runs["ko_t5_175B_selsp"]
needed = flops.training_flops(run.config, run.global_batch)
possible = run.seconds_per_step * run.n_gpus * a100.peak
print(f"{run.global_batch} sequences, {run.n_gpus} A100, {run.seconds_per_step} s a step")
print(f"needed {needed:.3e} of {possible:.3e} FLOPs: {needed / possible:.1%}")
print(f"the paper prints {run.mfu_percent} %")
wrong = flops.mfu(needed, run.seconds_per_step, run.n_gpus, a100.peak_sparse)
print(f"by the larger peak on the data sheet: {wrong:.1%}")

# %% [markdown]
# Mind that last line. The larger peak is for matrices in which two of every four numbers are zero.
# No GPT here has such weights.
#
# *Hardware* FLOPs utilisation, HFU, counts what the program *did*, also what it did twice. To save
# memory, a program may throw activations away and compute them again in the backward pass
# ([lesson 5](../05_backward/README.md)). With full recomputation the blocks run forward twice:

# %%
config = flops.Config(n_embd=256, n_head=4, n_layer=6, n_ctx=128, n_vocab=1000)
for how, block in {"none": layers.block, "full": layers.recompute(layers.block)}.items():
    device, params = on_shapes(config)
    ids = device.empty((2, config.n_ctx), int)  # [b, s]
    _, back = layers.gpt2(ids, params, ids, 1, config.n_head, layers.Layers(block=block))
    back()
    formula = flops.training_flops(config, 2, recompute=how)
    print(f"recompute {how}: {device.matmul_flops:,} FLOPs, by the closed form {formula:,}")

# %% [markdown]
# The paper of the run above measured the model both ways: recomputing all of a block, and only its
# attention (*selective*), there with sequence parallelism.

# %%
for run in (runs["ko_t5_175B_full"], runs["ko_t5_175B_selsp"]):
    done = flops.training_flops(run.config, run.global_batch, run.recompute)
    hfu = 100 * flops.mfu(done, run.seconds_per_step, run.n_gpus, a100.peak)
    print(f"{run.recompute:9} {run.seconds_per_step:6.2f} s a step, ", end="")
    print(f"MFU {run.percent('korthikanti-mfu'):.1f} %, HFU {hfu:.1f} %")
times = runs["ko_t5_175B_full"].seconds_per_step / run.seconds_per_step
print(f"by the clock {times:.2f} times as fast")

# %% [markdown]
# By HFU the two are alike. The clock, and MFU, know better. A program that computes everything
# twice has a splendid HFU; when someone quotes a utilisation, ask which.
#
# ## And ask what was counted
#
# One step of MegaScale by every convention of `flops.CONVENTIONS`, which says what each counts and
# whose it is. The time is the same in all lines. (HFU is what it would be *if* the run recomputed
# that much.)

# %%
run = runs["ms_t2_MS_6144_12288"]
print(f"{run.n_gpus:,} GPUs, {run.seconds_per_step} s a step")
for name, how in flops.CONVENTIONS.items():
    print(f"{run.percent(name):6.1f} % {how.kind}  {name}")
run = runs["ko_t5_22B_selsp"]
ratio = run.percent("korthikanti-hfu-corrected") / run.percent("korthikanti-mfu")
print(f"Table 5, 22B: MFU {run.mfu_percent} %, HFU {run.hfu_percent} %; ", end="")
print(f"with recomputed attention counted once, HFU {run.mfu_percent * ratio:.1f} %")

# %% [markdown]
# The last line is about a slip: equation 8 of that paper, as printed, counts recomputed attention
# threefold. An author agrees ([Megatron-LM issue
# 523](https://github.com/NVIDIA/Megatron-LM/issues/523)).
#
# ## Checking MegaScale's table by its own step times
#
# The famous result of [arXiv 2402.15627](https://arxiv.org/abs/2402.15627), Table 2, is 55.2 % MFU
# on 12,288 GPUs, 1.34 times Megatron-LM's 41.2 %. The table has step times beside the MFU. So we
# compute every MFU anew, for both systems, with attention over the whole square and over its
# causal half.

# %%
table, off = [run for run in runs.values() if run.id.startswith("ms_t2")], {}
print("                                          MFU in %                aggregate PFLOP/s")
print("system         GPUs  batch  step, s   printed  square  causal   printed  by the MFU")
for run in table:
    square, causal = run.percent("korthikanti-mfu"), run.percent("causal")
    by_mfu = run.mfu_percent / 100 * run.n_gpus * run.peak_tflops / 1e3
    mark = "  differs" if run.id in flops.contradicting_runs() else ""
    print(f"{run.system:12} {run.n_gpus:6,} {run.global_batch:6,}", end="")
    print(f"{run.seconds_per_step:9} {run.mfu_percent:9} {square:7.1f} {causal:7.1f}", end="")
    print(f"{run.aggregate_pflops:10,.1f} {by_mfu:11,.1f}{mark}")
    for name, percent in (("square", square), ("causal", causal)):
        off.setdefault((run.system, name), []).append(percent - run.mfu_percent)
for (system, name), points in off.items():
    print(f"{system:12} {name}: {min(points):+.2f} to {max(points):+.2f} points off")

# %% [markdown]
# Read it column by column.
#
# - **Megatron-LM's rows** are the whole square, to the rounding of the printed seconds.
# - **MegaScale's rows** are not. All are lower than the square, and all but one are nearer to the
#   causal half. So the two halves of the table are in two conventions.
# - **The aggregate PFLOP/s** should be the MFU times the GPUs' peak. Where it says "differs" they
#   are not.
#
# Then what of the 1.34? Put both systems on one convention, and beside it the clock, which needs
# none:

# %%
ms, mt = runs["ms_t2_MS_6144_12288"], runs["ms_t2_MT_6144_12288"]
pairs = {"as printed": (ms.mfu_percent, mt.mfu_percent)}
for name in ("korthikanti-mfu", "causal"):
    pairs[name] = ms.percent(name), mt.percent(name)
for name, (a, b) in pairs.items():
    print(f"{name:16} {a:.1f} % against {b:.1f} %, {a / b:.2f} times")
a, b = ms.seconds_per_step, mt.seconds_per_step
print(f"{'by the clock':16} {a:.2f} s against {b:.2f} s, {b / a:.2f} times")

# %% [markdown]
# The speed-up is real, and even a little larger than printed. **Published** are step times, MFU,
# aggregate FLOP/s, the model's shape, the number of GPUs. **Inferred**, by us, is that MegaScale's
# rows count causal attention: the paper does not say, nor does it give the micro-batch, the
# attention window, or whether anything is recomputed. An MFU is worth little without what it
# counts; `python -m gpt_numpy mfu` prints yours in every convention.

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. You double the batch. What happens to the FLOPs per token, and to the intensity of a product?
#    And what if you double the sequence instead? (`flops.training_flops`, `intensity`)
# 2. How many tokens must a product of GPT-3's size have to be limited by arithmetic: on a V100, an
#    A100, an H100? Guess from the table of FLOPs per byte. (`intensity`)
# 3. Somebody says that a run of `gpt3-13b`, 1,024 sequences in 10 s on 128 A100, has an MFU of
#    45.7 %. In which convention? Is it an MFU? (`flops.CONVENTIONS[name].flops`, `flops.mfu`)
