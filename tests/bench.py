"""How long things take: `python -m tests.bench [--only NAME] [--json]`.

Machines differ and are noisy, so each time is stated as a multiple of a yardstick that is timed in
turn with it: the bare matrix products (BLAS) that the work cannot do without, into memory that is
already there. All at GPT-2 124M's shapes, random float32 weights; medians. Peers are timed too
where they are installed; nothing else of the project uses them:

    pip install torch transformers safetensors tiktoken tokenizers threadpoolctl
"""

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gpt_numpy.__main__ import keep_memory
from gpt_numpy.checkpoint import flatten, save_gpt2
from gpt_numpy.flops import MODELS
from gpt_numpy.gpt2 import gpt2, new_cache
from gpt_numpy.sample import CHUNK, generate
from gpt_numpy.tokenizer import LETTERS
from gpt_numpy.train import OneDevice, Settings, init_params
from tests import bench_checkpoint, bench_tokenizer

CONFIG = MODELS["gpt2"]
BLAS = "bare BLAS"
ABSENT = "not installed"
KEPT = {"generate": True, "train": True}  # the command line calls keep_memory() for both
RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape, np.float32) * np.float32(0.02)


def ids(*shape):
    return RNG.integers(0, CONFIG.n_vocab, shape)


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def row(work, yardstick, ours, target, peers=(), yardstick_name=BLAS, memory="", rounds=7):
    """Time functions in turn, in one order and then in the other -> a row of the table.

    peers: {name: function that imports it and returns what to time}. A first round, not counted,
    fills caches. A ratio is the median of the rounds' ratios: within a round the load is the same.
    """
    runs, missing = {"yardstick": yardstick, "ours": ours}, {}
    for name, prepare in dict(peers).items():
        try:
            runs[name] = prepare()
        except ImportError:
            missing[name] = ABSENT
    times = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name in list(runs) if i % 2 else reversed(runs):
            times[name].append(seconds(runs[name]))
    times = {name: some[1:] for name, some in times.items()}
    ratios = {
        name: statistics.median(t / y for t, y in zip(some, times["yardstick"]))
        for name, some in times.items()
    }
    return {
        "work": work,
        "yardstick": yardstick_name,
        "yardstick_seconds": statistics.median(times["yardstick"]),
        "seconds": statistics.median(times["ours"]),
        "ratio": ratios["ours"],
        "target": target,
        "peers": {name: ratios[name] for name in dict(peers) if name in runs} | missing,
        "memory": memory,
    }


def memory(command, override):
    """Keep freed memory if that command of the command line does -> what the row says of it."""
    if KEPT[command] if override is None else override == "kept":
        keep_memory()
        return "kept"
    return "returned"


# ---- the yardsticks


def linears(params):
    """The weights of the linear layers of all blocks: [d_in, d_out] each."""
    return [w for name, w in flatten(params).items() if name.startswith("h.") and w.ndim == 2]


def products(params, n, chunk=CHUNK):
    """The products of a prompt of n tokens: weights, causal attention in chunks, last logits."""
    h, e = CONFIG.n_head, CONFIG.n_embd // CONFIG.n_head
    weights = [(array(n, len(w)), w, array(n, w.shape[1])) for w in linears(params)]
    q, k, v, y = (array(h, n, e) for _ in range(4))
    scores = [array(h, chunk, m) for m in range(chunk, n + 1, chunk)]
    last = array(CONFIG.n_embd)

    def run():
        for x, w, out in weights:
            np.matmul(x, w, out=out)
        for _ in params["blocks"]:
            for s in scores:
                m = s.shape[-1]
                np.matmul(q[:, m - chunk : m], k[:, :m].swapaxes(1, 2), out=s)
                np.matmul(s, v[:, :m], out=y[:, m - chunk : m])
        last @ params["wte"].T

    return run


def vector_products(params, passes):
    """So many passes of one token each through all weights."""
    weights = [(array(w.shape[0]), w) for w in linears(params)]
    weights.append((array(CONFIG.n_embd), params["wte"].T))

    def run():
        for _ in range(passes):
            for x, w in weights:
                x @ w

    return run


def training_products(params, n):
    """The weight products of a training step on n tokens: forward, and of both gradients."""
    weights = [*linears(params), params["wte"].T]
    inputs = {size: array(n, size) for w in weights for size in w.shape}
    outputs = {size: array(n, size) for w in weights for size in w.shape}
    grads = {w.shape: np.zeros_like(w) for w in weights}

    def run():
        for w in weights:
            d_in, d_out = w.shape
            np.matmul(inputs[d_in], w, out=outputs[d_out])
            np.matmul(inputs[d_out], w.T, out=outputs[d_in])
            np.matmul(inputs[d_in].T, inputs[d_out], out=grads[w.shape])

    return run


# ---- the peers


def transformers_model(**options):
    """A GPT-2 of transformers on torch, 124M, with random weights and no dropout."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    none = dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0)
    return torch, GPT2LMHeadModel(GPT2Config(**none, **options))


def transformers_generate(prompt, n):
    torch, model = transformers_model(eos_token_id=None, bos_token_id=None)
    model.eval()
    tokens = torch.tensor(prompt)[None]  # [1, s]
    every = torch.ones_like(tokens)  # [1, s], the mask of a batch without padding
    options = {"max_new_tokens": n, "do_sample": False, "pad_token_id": 0}

    def run():
        made = model.generate(tokens, attention_mask=every, **options)
        assert made.shape == (1, len(prompt) + n)

    return run


def transformers_step(tokens, targets):
    torch, model = transformers_model(use_cache=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    tokens, targets = torch.tensor(tokens), torch.tensor(targets).reshape(-1)

    def run():
        logits = model(tokens).logits.reshape(len(targets), -1)
        torch.nn.functional.cross_entropy(logits, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return run


# ---- the rows


def prompt(args):
    params, tokens = init_params(CONFIG), ids(CONFIG.n_ctx).tolist()
    yield row(
        "prompt of 1,024 tokens, last logits",
        products(params, CONFIG.n_ctx),
        lambda: list(generate(params, CONFIG.n_head, tokens, 1, temperature=0)),
        1.6,
        {"transformers": lambda: transformers_generate(tokens[:-1], 1)},  # it too makes one token
        memory=memory("generate", args.memory),
    )


def tokens40(args):
    params, tokens = init_params(CONFIG), ids(8).tolist()
    greedy, sampled = {"temperature": 0}, {"temperature": 0.8, "seed": 0}
    for name, target, options in (("", 1.25, greedy), (", sampled", None, sampled)):
        yield row(
            f"prompt of 8 tokens + 40 tokens{name}",
            vector_products(params, 40),
            lambda options=options: list(generate(params, CONFIG.n_head, tokens, 40, **options)),
            target,
            {} if name else {"transformers": lambda: transformers_generate(tokens, 40)},
            memory=memory("generate", args.memory),
        )


def position(args):
    params, tokens = init_params(CONFIG), ids(1)
    cache = new_cache(**params, n_head=CONFIG.n_head)
    for kv in cache:
        kv[...] = array(*kv.shape)

    def at(past):
        def run():
            for _ in range(10):
                gpt2(tokens, **params, n_head=CONFIG.n_head, cache=cache, past=past, last=True)

        return run

    yield row(
        "10 tokens at position 1,000", at(16), at(1000), 1.3, yardstick_name="at position 16",
        memory=memory("generate", args.memory), rounds=15,
    )  # fmt: skip


def step(args):
    kept = memory("train", args.memory)
    for shape, target in (((4, 256), 1.7), ((1, 1024), 2.0)):
        tokens, targets = ids(*shape), ids(*shape)
        model = OneDevice(init_params(CONFIG), Settings(n_head=CONFIG.n_head))
        yield row(
            f"training step, {shape[0]} x {shape[1]:,}, AdamW, clipped",
            training_products(model.params, tokens.size),
            lambda model=model, batch=(tokens, targets): model.step(*batch, 1e-4),
            target,
            {"transformers": lambda batch=(tokens, targets): transformers_step(*batch)},
            memory=kept,
            rounds=5,
        )


def process(args):
    """From nothing to the first token: both read the same folder."""
    if not installed("torch", "transformers"):
        yield absent("prompt to first token, whole process", "transformers", 0.15)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder))
        options = ["-n", "1", "--temperature", "0", "--model", folder]

        def run(*args):
            return lambda: subprocess.run([sys.executable, *args], check=True, capture_output=True)

        yield row(
            "prompt to first token, whole process",
            run("-c", FIRST_TOKEN, folder, PROMPT),
            run("-m", "gpt_numpy", "generate", PROMPT, *options),
            0.15,
            yardstick_name="transformers",
            memory="as the command has it",
            rounds=5,
        )


PROMPT = "Alan Turing theorized that computers would one day become"
FIRST_TOKEN = """
import sys
from transformers import GPT2LMHeadModel, GPT2Tokenizer
_, folder, prompt = sys.argv
tokenizer = GPT2Tokenizer.from_pretrained(folder)
model = GPT2LMHeadModel.from_pretrained(folder)
made = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=1, do_sample=False)
print(tokenizer.decode(made[0]))
"""


def write_model(folder):
    """Random weights and made-up merges, of two bytes each, in the files that both sides read."""
    params = init_params(CONFIG)
    save_gpt2(folder, params, CONFIG.n_head, {"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    merges = [(LETTERS[i // 256], LETTERS[i % 256]) for i in range(50_000)]
    lines = ["#version: 0.2", *map(" ".join, merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8", newline="\n")
    names = [*LETTERS, *map("".join, merges), "<|endoftext|>"]
    vocab = json.dumps({name: i for i, name in enumerate(names)})
    (folder / "vocab.json").write_text(vocab, encoding="utf-8")


def load(args):
    if not installed("safetensors"):
        yield absent("load 500 MB F32", "safetensors", 0.25)
        return
    yield from map(theirs, bench_checkpoint.rows())


def tokenizer(args):
    if "GPT2_VOCAB" not in os.environ:
        why = "set GPT2_VOCAB to a folder with GPT-2's vocab.bpe (see tests/test_tokenizer.py)"
        yield absent("tokenizer", "tiktoken", 1 / 0.45) | {"peers": {"tiktoken": why}}
        return
    from pydoc_data.topics import topics  # Python's reference: 460,000 letters of English

    merges = Path(os.environ["GPT2_VOCAB"]) / "vocab.bpe"
    yield from map(theirs, bench_tokenizer.rows("\n".join(topics.values()), merges))


def theirs(made):
    """A row of the other benchmarks, whose yardstick is a peer, as a row of this one."""
    work, ours, peer, peers, ratio, target = made
    return absent(work, peer, target) | {
        "yardstick_seconds": peers, "seconds": ours, "ratio": ratio,
        "peers": {} if ratio else {peer: ABSENT},
    }  # fmt: skip


def absent(work, peer, target):
    """The row of what has only a peer for a yardstick, when that is not installed."""
    return {
        "work": work, "yardstick": peer, "yardstick_seconds": None, "seconds": None, "ratio": None,
        "target": target, "peers": {peer: ABSENT}, "memory": "",
    }  # fmt: skip


def installed(*names):
    return all(importlib.util.find_spec(name) for name in names)


ROWS = {
    "prompt": prompt, "tokens": tokens40, "position": position, "step": step, "process": process,
    "load": load, "tokenizer": tokenizer,
}  # fmt: skip


# ---- the table


def machine():
    """What the figures were measured on: cores, versions, BLAS and its kernel."""
    blas = np.show_config("dicts")["Build Dependencies"]["blas"]
    text = f"{os.cpu_count()} cores, NumPy {np.__version__}, {blas['name']} {blas['version']}"
    if not installed("threadpoolctl"):
        return f"{text} (install threadpoolctl to see its kernel)"
    from threadpoolctl import threadpool_info

    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            text += f", kernel {pool.get('architecture')}, {pool['num_threads']} threads"
    return text


HEADER = f"{'work, in seconds':52} {'yardstick':>9} {'ours':>9}  ratio target"


def show(row):
    if row["ratio"] is None:
        why = "; ".join(f"{name} {what}" for name, what in row["peers"].items())
        return f"{row['work']:52} not measured: {why}"
    notes = [f"of {row['yardstick']}"]
    notes += [f"{name} {f'{x:.3g}' if x != ABSENT else x}" for name, x in row["peers"].items()]
    if row["memory"]:
        notes.append(f"freed memory {row['memory']}")
    target = "none"
    if row["target"]:
        target = f"{row['target']:.3g} {'met' if row['ratio'] <= row['target'] else 'NOT MET'}"
    return (
        f"{row['work']:52} {row['yardstick_seconds']:9.4f} {row['seconds']:9.4f} "
        f"{row['ratio']:6.3f} <= {target:13} {'; '.join(notes)}"
    )


def results(args):
    """{"machine", "rows"} of each group of rows asked for, or None if its process failed.

    Each has a process to itself, and BLAS the settings that a user's has.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    if args.only and clean == dict(os.environ):
        with contextlib.redirect_stdout(sys.stderr):
            yield {"machine": machine(), "rows": list(ROWS[args.only](args))}
        return
    call = [sys.executable, "-m", "tests.bench", "--json"]
    if args.memory:
        call += ["--memory", args.memory]
    for name in [args.only] if args.only else ROWS:
        done = subprocess.run([*call, "--only", name], env=clean, stdout=subprocess.PIPE)
        yield None if done.returncode else json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--only", choices=ROWS, metavar="NAME", help=f"of {', '.join(ROWS)}")
    what = "what becomes of freed memory (default: as on the command line)"
    parser.add_argument("--memory", choices=["kept", "returned"], help=what)
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    args = parser.parse_args()
    whole = {"machine": None, "rows": []}
    failed = 0
    for result in results(args):
        if result is None:  # its traceback is on stderr
            failed += 1
            continue
        if not args.json:
            header = [] if whole["machine"] else [result["machine"], HEADER]
            print(*header, *map(show, result["rows"]), sep="\n", flush=True)
        whole = {"machine": result["machine"], "rows": whole["rows"] + result["rows"]}
    if args.json:
        print(json.dumps(whole))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
