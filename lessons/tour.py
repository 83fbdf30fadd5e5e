# %% [markdown]
# # The tour
#
# One 60-line forward pass, four worlds. **The first: NumPy.** A small GPT-2, trained by this
# package, goes on from a prompt.

# %%
import time
from pathlib import Path

import numpy as np

import gpt_numpy
from gpt_numpy.checkpoint import flatten, gpt2_shapes, load_gpt2, unflatten
from gpt_numpy.device import Device
from gpt_numpy.flops import Config, model
from gpt_numpy.gpt2 import gpt2
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.parallel.model import Layout, Model
from gpt_numpy.sample import generate
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import OneDevice, Settings, init_params

tiny = Path(gpt_numpy.__file__).parent / "tiny"
params, n_head = load_gpt2(tiny)
tokenizer = Tokenizer.from_file(tiny / "merges.txt")
count = sum(w.size for w in flatten(params).values())
print(f"{len(params['blocks'])} blocks, {tokenizer.n_vocab:,} tokens, {count:,} parameters\n")
print("It was", end="")
ids = generate(params, n_head, tokenizer.encode("It was"), 100, temperature=0.8, seed=0)
print(*tokenizer.decode_stream(ids), sep="")

# %% [markdown]
# ---
# **The second: a simulated device.** The same function, unchanged, on arrays that live on a
# device, which meters what they do. The numbers are NumPy's, to the bit.

# %%
gpu = Device(0)
ids = tokenizer.encode("It was a dark night")
on_gpu = unflatten({name: gpu.put(w) for name, w in flatten(params).items()})
logits = gpt2(gpu.put(np.array(ids)), **on_gpu, n_head=n_head)
print("equal to NumPy's:", np.array_equal(logits.numpy(), gpt2(ids, **params, n_head=n_head)))
print(f"{gpu.matmul_flops:,} FLOPs in matmuls, {gpu.peak:,} bytes held at most")

# %% [markdown]
# ---
# **The third: shapes without numbers.** One forward pass of GPT-3 175B, on this computer.

# %%
config = model("gpt3-175b")
start = time.perf_counter()
gpu = Device(0)
shapes = gpt2_shapes(config.n_vocab, config.n_ctx, config.n_embd, config.n_layer)
weights = {name: gpu.empty(shape, "bf16") for name, shape in shapes.items()}
gpt2(gpu.empty(config.n_ctx, int), **unflatten(weights), n_head=config.n_head)
count, tflops = sum(w.size for w in weights.values()), gpu.matmul_flops / 1e12
print(f"{count:,} parameters, {tflops:.0f} TFLOPs for {config.n_ctx:,} tokens")
print(f"{gpu.peak / 1e9:.0f} GB, more than any GPU has")
print(f"That took {time.perf_counter() - start:.1f} s.")

# %% [markdown]
# ---
# So the model has to be split. **Eight devices train one small model**, 2 x 2 x 2: the batch in
# two, the layers in two, every matrix in two. The losses are one device's.

# %%
settings = Settings(
    n_embd=16, n_head=4, n_layer=4, n_ctx=16, n_vocab=280, batch=4, micro_batch=1, dtype="float64"
)
config = Config(n_embd=16, n_head=4, n_layer=4, n_ctx=16, n_vocab=280)
text = np.random.default_rng(0).integers(0, 280, (4, 17))


def three_steps(model):
    return [model.step(text[:, :-1], text[:, 1:], lr=1e-2)[0] for _ in range(3)]


one = three_steps(OneDevice(init_params(config, np.float64, seed=1), settings))
eight = run(
    lambda rank: three_steps(
        Model(rank, init_params(config, np.float64, seed=1), settings, Layout(2, 2, 2))
    ),
    Mesh(dp=2, pp=2, tp=2),
)
print("one device:   ", *[f"{loss:.12f}" for loss in one])
print("eight devices:", *[f"{loss:.12f}" for loss in eight[-1]])
