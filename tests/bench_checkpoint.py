"""Loading 500 MB of float32 weights, against the safetensors library's NumPy loader.

Each figure comes from a fresh process, with the file in the page cache. "touch" looks at the shape
and one element of each tensor, "sum" reads everything.
"""

import importlib.util
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gpt_numpy.checkpoint import gpt2_shapes, read_safetensors, write_safetensors

ROUNDS = 5


def rows():
    """Measure -> [(name, ours, peer's name, peer's, ratio, target)]; seconds, or MB of memory."""
    if not importlib.util.find_spec("safetensors") or not Path("/proc/self/status").exists():
        print("skipped: loading weights needs the safetensors library, and Linux's /proc")
        return []
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, uses in [("mapped", ("touch", "sum")), ("odd header, as gpt2's", ("touch",))]:
            path = Path(folder) / "weights"
            write_weights(path, odd=kind != "mapped")
            for use in uses:
                ours, peer = compare(path, use)
                name = f"load 500 MB F32, {kind}, {use}"
                targets = (0.25, 0.1) if (kind, use) == ("mapped", "touch") else (None, None)
                for unit, a, b, target in zip(("s", "MB"), ours, peer, targets, strict=True):
                    made.append((f"{name} [{unit}]", a, "safetensors", b, a / b, target))
    return made


def write_weights(path, odd):
    """Write random weights of GPT-2 124M; an odd header length leaves the data unaligned."""
    rng = np.random.default_rng(0)
    shapes = gpt2_shapes(n_vocab=50257, n_ctx=1024, n_embd=768, n_layer=12)
    write_safetensors(path, {n: rng.random(s, np.float32) for n, s in shapes.items()})
    if odd:
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        path.write_bytes((length + 3).to_bytes(8, "little") + raw[8 : 8 + length] + b"   "
                         + raw[8 + length :])  # fmt: skip


def compare(path, use):
    """Measure both loaders in turn -> (seconds, MB) of ours, of the peer's: medians."""
    found = {"ours": [], "peer": []}
    for i in range(ROUNDS + 1):
        for loader in ("ours", "peer") if i % 2 else ("peer", "ours"):
            call = f"measure({loader!r}, {use!r}, {str(path)!r})"
            code = f"from tests.bench_checkpoint import measure; print(*{call})"
            output = subprocess.check_output([sys.executable, "-c", code], text=True)
            if i:  # the first round fills the page cache
                found[loader].append([float(figure) for figure in output.split()])
    return [tuple(map(statistics.median, zip(*runs, strict=True))) for runs in found.values()]


def measure(loader, use, path):
    """Load in this process -> seconds, MB that its peak memory rose by."""
    load = read_safetensors
    if loader == "peer":
        from safetensors.numpy import load_file as load

    before, start = memory("VmRSS"), time.perf_counter()
    tensors = load(path)
    for tensor in tensors.values():
        if use == "sum":
            tensor.sum()
        else:
            tensor.shape, tensor.flat[-1]
    return time.perf_counter() - start, memory("VmHWM") - before


def memory(field):
    """Read this process's memory in MB; getrusage's peak would include the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1000


if __name__ == "__main__":
    for name, ours, peer, theirs, ratio, target in rows():
        print(f"{name:50} {ours:9.4f}  {peer} {theirs:9.4f}  ratio {ratio:.4f}  target {target}")
