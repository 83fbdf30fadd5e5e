# %% [markdown]
# # The tour
#
# One short forward pass, four worlds. **The first: NumPy.** A small GPT-2, trained by this
# package, goes on from a prompt.

# %%
import time
from pathlib import Path

import numpy as np

import gpt_numpy
from gpt_numpy import timeline
from gpt_numpy.checkpoint import flatten, gpt2_shapes, load_gpt2, unflatten
from gpt_numpy.cluster import simulate
from gpt_numpy.cost import Cost
from gpt_numpy.device import Device
from gpt_numpy.flops import model, published_runs
from gpt_numpy.gpt2 import gpt2
from gpt_numpy.hardware import gpu
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.papers import setup_of
from gpt_numpy.parallel.model import Layout, Model, forward
from gpt_numpy.sample import generate
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import OneDevice, Settings, init_params

tiny = Path(gpt_numpy.__file__).parent / "tiny"
params, n_head = load_gpt2(tiny)
tokenizer = Tokenizer.from_file(tiny / "merges.txt")
count = sum(w.size for w in flatten(params).values())
print(f"{len(params['blocks'])} blocks, {tokenizer.n_vocab:,} tokens, {count:,} parameters\n")
print("Mrs. Bennet", end="")
ids = generate(params, n_head, tokenizer.encode("Mrs. Bennet"), 90, temperature=0.6, seed=0)
print(*tokenizer.decode_stream(ids), sep="")

# %% [markdown]
# ---
# **The second: a simulated device.** The same function, unchanged, on arrays that live on a
# device, which meters what they do. The numbers are NumPy's, to the bit.

# %%
device = Device(0)
ids = tokenizer.encode("It was a dark night")
on_device = unflatten({name: device.put(w) for name, w in flatten(params).items()})
logits = gpt2(device.put(np.array(ids)), **on_device, n_head=n_head)
print("equal to NumPy's:", np.array_equal(logits.numpy(), gpt2(ids, **params, n_head=n_head)))
print(f"{device.matmul_flops:,} FLOPs in matmuls, {device.peak:,} bytes held at most")

# %% [markdown]
# ---
# **The third: shapes without numbers.** One forward pass of GPT-3 175B, on this computer.

# %%
config = model("gpt3-175b")
start = time.perf_counter()
device = Device(0)
shapes = gpt2_shapes(config.n_vocab, config.n_ctx, config.n_embd, config.n_layer)
weights = {name: device.empty(shape, "bf16") for name, shape in shapes.items()}
gpt2(device.empty(config.n_ctx, int), **unflatten(weights), n_head=config.n_head)
count, tflops = sum(w.size for w in weights.values()), device.matmul_flops / 1e12
print(f"{count:,} parameters, {tflops:.0f} TFLOPs for {config.n_ctx:,} tokens")
print(f"{device.peak / 1e9:.0f} GB, more than any GPU has")
print(f"That took {time.perf_counter() - start:.1f} s.")

# %% [markdown]
# ---
# So a model has to be split. **Eight devices, 2 x 2 x 2**, run the forward pass together: the
# batch in two, the layers in two, every matrix in two. The logits are one device's.

# %%
text = np.array([tokenizer.encode("It is a truth universally")[:8]] * 4)  # [4, 8]
text += np.arange(4)[:, None]  # four different ones
exact = unflatten({name: w.astype(np.float64) for name, w in flatten(params).items()})
whole = gpt2(text, **exact, n_head=n_head)  # [4, 8, v]
mesh = Mesh(dp=2, pp=2, tp=2)
parts = run(lambda rank: forward(rank, exact, text, n_head), mesh)
split = np.concatenate([parts[3].numpy(), parts[7].numpy()])  # the last stage of both replicas
difference = abs(split - whole).max()
print(f"logits {split.shape}, the largest difference to one device: {difference:.0e}")
print("\nrank  dp pp tp    held MB   MFLOP   sent by pp   by tp, KB")
for i, device in enumerate(mesh.devices):
    place = "  ".join(str(c) for c in mesh.coordinates(i).values())
    sent = "".join(f"{device.sent[group] / 1e3:12.1f}" for group in ("pp", "tp"))
    print(f"{i:4}   {place} {device.peak / 1e6:10.2f} {device.matmul_flops / 1e6:7.1f} {sent}")

# %% [markdown]
# ---
# They can train as well, and time can pass on them. One step on eight simulated A100: each
# replica is a pipeline of two stages and four micro-batches, and a stage is two GPUs.

# %%
settings = Settings(
    n_vocab=1024, n_embd=128, n_head=4, n_layer=6, n_ctx=256, batch=8, micro_batch=1
)
ids = np.random.default_rng(0).integers(0, 1024, (8, 257))  # [b, s + 1]
start_weights = init_params(settings.config)
mesh = Mesh(dp=2, pp=2, tp=2, cost=Cost(gpu("a100")))


def one_step(rank):
    trained = Model(rank, start_weights, settings, Layout(dp=2, pp=2, tp=2))
    trained.layers = timeline.watch(trained.layers, rank.device)
    rank.device.record = []
    return trained.step(ids[:, :-1], ids[:, 1:], lr=1e-3)[0]


losses = run(one_step, mesh)
alone = OneDevice(start_weights, settings).step(ids[:, :-1], ids[:, 1:], lr=1e-3)[0]
print(f"loss on eight devices {losses[0]:.5f}, on one {alone:.5f}\n")
spans = [span for span in timeline.of_mesh(mesh.devices) if span.lane.count(" ") == 1]
print(timeline.text(spans, width=90).replace("k compute", "k optimizer"))

# %% [markdown]
# ---
# **And the same program on 12,288 devices**: GPT-3 175B, as MegaScale trained it (arXiv
# 2402.15627, Table 2). Shapes without numbers, time from a cost model fitted to other runs.

# %%
published = next(row for row in published_runs() if row.id == "ms_t2_MS_6144_12288")
step = simulate(setup_of(published))
print(f"simulated: {step.seconds:.2f} s a step, {step.percent():.1f} % MFU")
print(f"published: {published.seconds_per_step:.2f} s a step, "
      f"{published.percent('korthikanti-mfu'):.1f} % MFU by the same count; the paper says "
      f"{published.mfu_percent} %")
print("\npython -m gpt_numpy megascale has the other rows, the errors among them.")
