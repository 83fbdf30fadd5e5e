"""Closed forms: parameters, FLOPs, bytes, pipeline and ring times of a GPT, and the MFU of papers.

The rest of the package counts these by running; here they are on paper, so that each can be held
against the other. A multiply and an add are two FLOPs, and only matmuls count (all of these papers
do so). 1 GB is 1e9 bytes. The papers' letters: B sequences of s tokens, L layers, h = n_embd,
a = n_head, V = n_vocab, t = tp, p = pp, m micro-batches per pipeline, v = virtual_stages.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpt_numpy.hardware import GPUS, gpu


class Config(NamedTuple):
    """The shape of a GPT; its MLP is 4 n_embd wide, its head is tied to the token embedding."""

    n_embd: int
    n_head: int
    n_layer: int
    n_ctx: int
    n_vocab: int


MODELS = {
    # GPT-2: the released checkpoints
    "gpt2": Config(768, 12, 12, 1024, 50257),
    "gpt2-medium": Config(1024, 16, 24, 1024, 50257),
    "gpt2-large": Config(1280, 20, 36, 1024, 50257),
    "gpt2-xl": Config(1600, 25, 48, 1024, 50257),
    # GPT-3: arXiv 2005.14165, Table 2.1. It prints 24 heads for XL and a width of 5140 for 13B,
    # which do not go with its own head size, 128: here 2048 / 128 = 16 heads and 40 x 128 = 5120.
    "gpt3-small": Config(768, 12, 12, 2048, 50257),
    "gpt3-medium": Config(1024, 16, 24, 2048, 50257),
    "gpt3-large": Config(1536, 16, 24, 2048, 50257),
    "gpt3-xl": Config(2048, 16, 24, 2048, 50257),
    "gpt3-2.7b": Config(2560, 32, 32, 2048, 50257),
    "gpt3-6.7b": Config(4096, 32, 32, 2048, 50257),
    "gpt3-13b": Config(5120, 40, 40, 2048, 50257),
    "gpt3-175b": Config(12288, 96, 96, 2048, 50257),
    # Megatron-LM at SC21: arXiv 2104.04473, Table 1
    "megatron-1.7b": Config(2304, 24, 24, 2048, 51200),
    "megatron-3.6b": Config(3072, 32, 30, 2048, 51200),
    "megatron-7.5b": Config(4096, 32, 36, 2048, 51200),
    "megatron-18.4b": Config(6144, 48, 40, 2048, 51200),
    "megatron-39.1b": Config(8192, 64, 48, 2048, 51200),
    "megatron-76.1b": Config(10240, 80, 60, 2048, 51200),
    "megatron-145.6b": Config(12288, 96, 80, 2048, 51200),
    "megatron-310.1b": Config(16384, 128, 96, 2048, 51200),
    "megatron-529.6b": Config(20480, 128, 105, 2048, 51200),
    "megatron-1008b": Config(25600, 160, 128, 2048, 51200),
    # Korthikanti and others: arXiv 2205.05198, Table 3
    "korthikanti-22b": Config(6144, 64, 48, 2048, 51200),
    "korthikanti-175b": Config(12288, 96, 96, 2048, 51200),
    "korthikanti-530b": Config(20480, 128, 105, 2048, 51200),
    "korthikanti-1t": Config(25600, 160, 128, 2048, 51200),
    # MegaScale: arXiv 2402.15627, Table 1 and section 6
    "megascale-175b": Config(12288, 128, 96, 2048, 64000),
    "megascale-530b": Config(20480, 160, 105, 2048, 64000),
}


def model(name):
    """The shape of a model by its name, upper or lower case.

    >>> model("gpt3-175b")
    Config(n_embd=12288, n_head=96, n_layer=96, n_ctx=2048, n_vocab=50257)
    """
    if name.lower() not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join(MODELS)}")
    return MODELS[name.lower()]


def check_config(config):
    """`config` itself, or a ValueError that names the field that no GPT can have."""
    for field, value in config._asdict().items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{field} is {value!r}: it must be a whole number of at least 1")
    if config.n_embd % config.n_head:
        raise ValueError(f"n_embd {config.n_embd} does not divide by n_head {config.n_head}")
    return config


def n_params(config, wpe=True, parallel_block=False):
    """Parameters, biases and layer norms included; `wpe=False` leaves the position embedding out.

    A block has 3h² + 3h (c_attn), h² + h (c_proj), 4h² + 4h and 4h² + h (MLP), and 2h for each
    layer norm, of which MegaScale's parallel block has one. Equation 2 of arXiv 2104.04473 is this
    without the last layer norm.

    >>> n_params(model("gpt2")), n_params(model("gpt2"), wpe=False)
    (124439808, 123653376)
    """
    h, _, n_layer, n_ctx, n_vocab = config
    block = 12 * h * h + 9 * h + (2 * h if parallel_block else 4 * h)
    return (n_vocab + (n_ctx if wpe else 0)) * h + n_layer * block + 2 * h


# FLOPs of a forward pass. Backward, a matmul becomes two of the same size, for the gradients of
# its two inputs: so training costs three times the forward pass, without any recomputation.


def linear_flops(n, d_in, d_out):
    """FLOPs of [n, d_in] @ [d_in, d_out]; the backward pass takes twice as many.

    >>> linear_flops(4, 3, 5)
    120
    """
    return 2 * n * d_in * d_out


def attention_pairs(seq, causal=False, window=None):
    """(query, key) pairs of one sequence that attention works on, exactly.

    The whole square s² is what a masked matmul computes. `causal` counts what the mask leaves,
    s(s + 1)/2; the papers' half is s²/2. With a window each token reads the last `window` tokens,
    itself included, so the first ones read fewer.

    >>> attention_pairs(4), attention_pairs(4, causal=True), attention_pairs(4, window=2)
    (16, 10, 7)
    """
    if window is not None:
        if window < 1:
            raise ValueError(f"window is {window}: it holds the token itself, so 1 at least")
        window = min(window, seq)
        return window * seq - window * (window - 1) // 2
    return seq * (seq + 1) // 2 if causal else seq * seq


def attention_flops(n, d, pairs, d_kv=None):
    """Forward FLOPs of attention over n tokens by part; with grouped queries `d_kv` is below d.

    >>> attention_flops(n=1, d=4096, pairs=8192, d_kv=1024)  # 8 of 32 heads have keys and values
    {'qkv': 50331648, 'proj': 33554432, 'scores': 67108864, 'values': 67108864}
    """
    return {
        "qkv": linear_flops(n, d, d + 2 * (d if d_kv is None else d_kv)),
        "proj": linear_flops(n, d, d),
        "scores": 2 * pairs * d,
        "values": 2 * pairs * d,
    }


def mlp_flops(n, d, d_hidden, matrices=2):
    """Forward FLOPs of an MLP; SwiGLU has three matrices.

    >>> mlp_flops(n=1, d=4096, d_hidden=14336, matrices=3)
    352321536
    """
    return matrices * linear_flops(n, d, d_hidden)


def moe_flops(n, d, d_hidden, n_experts, top_k, matrices=2):
    """Forward FLOPs of a mixture of experts: the router, and the `top_k` experts of each token.

    >>> moe_flops(n=1, d=1024, d_hidden=4096, n_experts=8, top_k=2)
    33570816
    """
    return linear_flops(n, d, n_experts) + top_k * mlp_flops(n, d, d_hidden, matrices)


def forward_flops(config, batch, seq=None, causal=False, window=None):
    """Forward FLOPs of `batch` sequences by part; a parallel block has the same matmuls.

    >>> parts = forward_flops(model("gpt2"), batch=1)
    >>> sum(parts.values()) / 1024  # per token; 37,748,736 of it attention
    284812800.0
    """
    h, _, n_layer, n_ctx, n_vocab = config
    seq = n_ctx if seq is None else seq
    pairs = batch * attention_pairs(seq, causal, window)
    block = attention_flops(batch * seq, h, pairs)
    block["mlp"] = mlp_flops(batch * seq, h, 4 * h)
    parts = {part: n_layer * flops for part, flops in block.items()}
    return {**parts, "head": linear_flops(batch * seq, h, n_vocab)}


def recompute_flops(config, batch, recompute, seq=None, causal=False, window=None):
    """FLOPs that recomputation adds: "selective" repeats scores and values, "full" the blocks."""
    parts = forward_flops(config, batch, seq, causal, window)
    again = {"none": [], "selective": ["scores", "values"], "full": parts.keys() - {"head"}}
    if recompute not in again:
        raise ValueError(f"recompute is {recompute!r}: choose one of {', '.join(again)}")
    return sum(parts[part] for part in again[recompute])


def training_flops(config, batch, recompute="none", seq=None, causal=False, window=None):
    """FLOPs of a training step: forward, twice that backward, and what `recompute` adds.

    >>> training_flops(model("korthikanti-175b"), batch=64)
    141091531099471872
    """
    forward = sum(forward_flops(config, batch, seq, causal, window).values())
    return 3 * forward + recompute_flops(config, batch, recompute, seq, causal, window)


# Utilisation. MFU counts what the model needs, HFU also what the program does twice; and papers
# differ on what a model needs, so a figure is worth little without its convention.


def palm_flops(n_params, n_layer, d_attn, seq):
    """Training FLOPs per token by PaLM's rule 6N + 12LHQT; `d_attn` is H heads times their size Q.

    >>> palm_flops(123653376, n_layer=12, d_attn=768, seq=1024)  # GPT-2, N without wpe
    855166464
    """
    return 6 * n_params + 12 * n_layer * d_attn * seq


def _printed(factor, attention, head):
    """The papers' factor·BLsh²(1 + attention·s/h + head·V/hL), for a config and B."""

    def flops(c, batch):
        bracket = 1 + attention * c.n_ctx / c.n_embd + head * c.n_vocab / (c.n_embd * c.n_layer)
        return factor * batch * c.n_layer * c.n_ctx * c.n_embd**2 * bracket

    return flops


def _palm(c, batch):
    return batch * c.n_ctx * palm_flops(n_params(c, wpe=False), c.n_layer, c.n_embd, c.n_ctx)


class Convention(NamedTuple):
    """What a paper's utilisation counts, and which paper."""

    kind: str  # MFU or HFU
    flops: Callable  # (config, sequences) -> FLOPs of a training step
    counts: str
    source: str


CONVENTIONS = {
    "matmul": Convention(
        "MFU", training_flops,
        "all matmuls of this package's GPT, added up by part, attention over the whole square",
        "flops.training_flops; equal to korthikanti-mfu",
    ),
    "korthikanti-mfu": Convention(
        "MFU", _printed(72, 1 / 6, 1 / 12),
        "72BLsh²(1 + s/6h + V/12hL): all matmuls, attention over the whole square",
        "arXiv 2205.05198 eq. 7; Megatron-LM's rows of MegaScale's Table 2 agree with it",
    ),
    "palm": Convention(
        "MFU", _palm,
        "6N + 12LHQT a token: N all parameters but wpe, attention over the whole square",
        "arXiv 2204.02311 appendix B",
    ),
    "causal": Convention(
        "MFU", lambda c, batch: training_flops(c, batch, causal=True),
        "every matmul, but attention only where the mask lets it look: s(s+1)/2 pairs",
        "nearest to MegaScale's own rows of its Table 2 (inferred: the paper does not say)",
    ),
    "6n": Convention(
        "MFU", lambda c, batch: 6 * n_params(c, wpe=False) * batch * c.n_ctx,
        "6N a token: no attention scores at all",
        "arXiv 2001.08361 section 2.1 (that paper leaves the embeddings out of N, too)",
    ),
    "korthikanti-hfu": Convention(
        "HFU", _printed(72, 1 / 3, 1 / 12),
        "72BLsh²(1 + s/3h + V/12hL): selective recomputation, its attention counted threefold",
        "arXiv 2205.05198 eq. 8, as printed",
    ),
    "korthikanti-hfu-corrected": Convention(
        "HFU", lambda c, batch: training_flops(c, batch, "selective"),
        "the same with recomputed attention counted once: s/3h becomes 2s/9h",
        "github.com/NVIDIA/Megatron-LM issue 523, where an author of the paper agrees",
    ),
    "megatron-sc21": Convention(
        "HFU", _printed(96, 1 / 6, 1 / 16),
        "96BLsh²(1 + s/6h + V/16hL): full recomputation, a second forward pass of the blocks",
        "arXiv 2104.04473 eq. 3; MFU is about 3/4 of it",
    ),
}  # fmt: skip


def mfu(flops_per_step, seconds, gpus, peak):
    """Share of the GPUs' `peak` (FLOP/s of one, dense) that `flops_per_step` in `seconds` makes.

    >>> round(100 * mfu(420e12, seconds=1, gpus=1, peak=989.5e12), 1)  # 420 TFLOP/s on an H200
    42.4
    """
    given = {"flops_per_step": flops_per_step, "seconds": seconds, "gpus": gpus, "peak": peak}
    for name, value in given.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value!r}: it must be a number above 0")
    if gpus != int(gpus):
        raise ValueError(f"gpus is {gpus!r}: it must be a whole number")
    return flops_per_step / seconds / gpus / peak


def mfu_report(config, gpus, gpu, batch, seconds, peak=None):
    """MFU and HFU of a step of `batch` sequences under every convention, as a dict ready for JSON.

    gpus   how many; `gpu` which (hardware.gpu); `peak` FLOP/s, in place of the GPU's dense peak
    rows   a dict for each of CONVENTIONS, in per cent
    notes  sentences on the peak: the sparse one was given, or what it would give
    """
    check_config(config)
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch is {batch!r}: it must be a whole number of sequences, 1 or more")
    peak = gpu.peak if peak is None else peak
    rows = []
    for name, how in CONVENTIONS.items():
        flops = how.flops(config, batch)
        percent = 100 * mfu(flops, seconds, gpus, peak)
        row = {"convention": name, "kind": how.kind, "percent": percent, "flops_per_step": flops}
        rows.append({**row, "counts": how.counts, "source": how.source})
    return {
        "model": {**config._asdict(), "n_params": n_params(config)},
        "gpu": gpu.name, "gpus": gpus, "peak_flops_per_second": peak,
        "global_batch": batch, "seconds_per_step": seconds,
        "tokens_per_second": batch * config.n_ctx / seconds,
        "rows": rows, "notes": _peak_notes(gpu, peak, [row["percent"] for row in rows]),
    }  # fmt: skip


def _peak_notes(gpu, peak, percents):
    notes = [
        "An HFU is one only for a run that recomputes what its line says.",
        f"Peak: {peak / 1e12:g} TFLOP/s a GPU; dense, {gpu.name} has {gpu.peak / 1e12:g}.",
    ]
    taken = [other for other in (gpu, *GPUS.values()) if other.peak_sparse == peak]
    if taken:
        notes.append(
            f"That is the sparse peak of {taken[0].name}, out of reach of dense matrices: of its"
            f" dense peak, {percents[0]:.1f} % is {percents[0] * peak / taken[0].peak:.1f} %."
        )
    elif gpu.peak_sparse:
        notes.append(
            f"By the data sheet's sparse peak, {gpu.peak_sparse / 1e12:g} TFLOP/s, by mistake,"
            f" {percents[0]:.1f} % would read {percents[0] * peak / gpu.peak_sparse:.1f} %."
        )
    if max(percents) > 100:
        notes.append("Above 100 %: is the peak this GPU's, in FLOP/s? Is attention overcounted?")
    return notes


def format_mfu(report):
    """The report as text: each figure, its convention, what that counts and who uses it."""
    shape, seconds = report["model"], report["seconds_per_step"]
    lines = [
        f"{shape['n_params'] / 1e9:.1f} billion parameters, n_vocab {shape['n_vocab']:,},"
        f" {report['gpus']:,} {report['gpu']}",
        f"{report['global_batch']:,} sequences of {shape['n_ctx']:,} tokens in {seconds:g} s,"
        f" {report['tokens_per_second']:,.0f} tokens/s",
        "",
    ]
    for row in report["rows"]:
        lines.append(f"{row['percent']:6.2f} % {row['kind']}  {row['convention']}")
        lines += [f"              {row['counts']}", f"              [{row['source']}]"]
    return "\n".join([*lines, "", *report["notes"]])


def add_mfu(parser):
    """The options of the command `mfu`."""
    add = parser.add_argument
    add("--model", required=True, help="a name, such as gpt3-175b")
    add("--gpus", type=int, required=True, metavar="N")
    add("--gpu", default="a100", help=f"one of {', '.join(GPUS)} (default: a100)")
    add("--batch", type=int, required=True, metavar="N", help="sequences in a step")
    add("--seconds", type=float, required=True, metavar="S", help="of a step")
    add("--vocab", type=int, metavar="N", help="tokens in the vocabulary, in place of the model's")
    add("--n-ctx", type=int, metavar="N", help="tokens in a sequence, in place of the model's")
    add("--peak", type=float, metavar="TFLOP/s", help="of a GPU, in place of its dense peak: 312")
    add("--json", action="store_true", help="print one JSON object")


def main_mfu(args):
    """Print a run's utilisation under every convention."""
    given = {"n_vocab": args.vocab, "n_ctx": args.n_ctx}
    config = model(args.model)._replace(**{k: n for k, n in given.items() if n is not None})
    if args.peak is not None and args.peak > 1e6:
        say = f": say --peak {args.peak / 1e12:g}" if math.isfinite(args.peak) else ""
        raise ValueError(f"--peak {args.peak:g} is in TFLOP/s, and no GPU has so many{say}")
    peak = None if args.peak is None else args.peak * 1e12
    report = mfu_report(config, args.gpus, gpu(args.gpu), args.batch, args.seconds, peak)
    print(json.dumps(report) if args.json else format_mfu(report))


# Memory


def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none",
    dropout=True, flash=False, parallel_block=False, element=2,
):  # fmt: skip
    """Bytes that one block holds on one rank for its backward pass: arXiv 2205.05198, Table 2.

    34sbh + 5as²b, for elements of 2 bytes and dropout masks of 1. Of the 34, the inputs of layer
    norms and of column-split matmuls (8) and masks (2) are whole on every tp rank, unless sequence
    parallelism splits them too. Selective recomputation drops the as² term, and so does flash
    attention; full recomputation holds the block's input. Without dropout it is 32sbh + 2as²b, and
    with a parallel block 4sbh less. Not counted: the statistics of norms and of flash attention.

    >>> activation_bytes(2048, 1, 4096, 32), activation_bytes(2048, 1, 4096, 32, tp=8)
    (956301312, 192937984)
    """
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f"recompute is {recompute!r}: choose one of none, selective, full")
    if n_embd % n_head or n_head % tp:
        raise ValueError(f"n_embd {n_embd} must divide by n_head {n_head}, and that by tp {tp}")
    sbh = seq * micro_batch * n_embd
    whole, split = ((2 if parallel_block else 4) * element + 2 * dropout) * sbh, 12 * element * sbh
    if recompute == "full":
        whole, split = element * sbh, 0
    elif recompute == "none" and not flash:
        split += (element + (element + 1) * dropout) * n_head * seq * seq * micro_batch
    if sequence_parallel:
        whole, split = 0, whole + split
    return whole + split // tp


def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    """Bytes per rank of weights, gradients and Adam's states: arXiv 1910.02054, section 3.

    Each parameter takes 2 bytes, its gradient 2, and 12 of fp32 weight, momentum and variance: 16.
    `grad_bytes=4` is the other convention, 18, of programs that add gradients up in fp32. ZeRO
    stage 1 splits the 12 over the dp ranks, stage 2 also the gradients, stage 3 also the weights.

    >>> [round(state_bytes(7.5e9, dp=64, zero=stage) / 1e9, 3) for stage in range(4)]  # GB
    [120.0, 31.406, 16.641, 1.875]
    """
    if zero not in (0, 1, 2, 3):
        raise ValueError(f"zero is {zero!r}: choose one of the stages 0, 1, 2, 3")
    parts = {3: 2, 2: grad_bytes, 1: 12}  # stage that splits it: bytes per parameter
    return sum(n_params * size / (dp if zero >= stage else 1) for stage, size in parts.items())


# Pipelines


def warm_up(schedule, pp, micro_batches, virtual_stages=1):
    """Forward passes before forward and backward alternate, by rank: arXiv 2104.04473, 2.2.

    >>> warm_up("1f1b", pp=4, micro_batches=8), warm_up("1f1b", pp=4, micro_batches=2)
    ([3, 2, 1, 0], [2, 2, 1, 0])
    >>> warm_up("interleaved", pp=4, micro_batches=8, virtual_stages=2)
    [10, 8, 6, 4]
    """
    if schedule not in ("gpipe", "1f1b", "interleaved"):
        raise ValueError(f"schedule is {schedule!r}: choose one of gpipe, 1f1b, interleaved")
    if schedule == "gpipe":
        return [micro_batches] * pp
    if schedule == "1f1b":
        return [min(pp - 1 - rank, micro_batches) for rank in range(pp)]
    if micro_batches % pp:
        raise ValueError(f"interleaved: micro_batches {micro_batches} must divide by pp {pp}")
    chunks = micro_batches * virtual_stages
    return [min(2 * (pp - 1 - r) + (virtual_stages - 1) * pp, chunks) for r in range(pp)]


def in_flight(schedule, pp, micro_batches, virtual_stages=1):
    """Most micro-batches whose activations a pipeline rank holds at once, by rank.

    Interleaved counts chunks: one micro-batch's activations of one of a rank's virtual stages.

    >>> in_flight("1f1b", pp=4, micro_batches=8), in_flight("gpipe", pp=4, micro_batches=8)
    ([4, 3, 2, 1], [8, 8, 8, 8])
    """
    chunks = micro_batches * (virtual_stages if schedule == "interleaved" else 1)
    return [min(n + 1, chunks) for n in warm_up(schedule, pp, micro_batches, virtual_stages)]


def pipeline_seconds(pp, micro_batches, forward, backward, virtual_stages=1):
    """Makespan (m + (p-1)/v)(F + B), communication free; F and B of a whole rank, not of a chunk.

    The same for GPipe and 1F1B: arXiv 2104.04473, section 2.2.

    >>> pipeline_seconds(pp=4, micro_batches=8, forward=1, backward=2)
    33.0
    >>> pipeline_seconds(pp=4, micro_batches=8, forward=2, backward=4, virtual_stages=2)
    57.0
    """
    return (micro_batches + (pp - 1) / virtual_stages) * (forward + backward)


def bubble(pp, micro_batches, virtual_stages=1, of="ideal"):
    """Idle time over busy time (of="ideal": (p-1)/mv), or over the makespan (of="total").

    >>> bubble(pp=8, micro_batches=32, virtual_stages=6, of="total")  # MegaScale on 12,288 GPUs
    0.035175879396984924
    """
    if of not in ("ideal", "total"):
        raise ValueError(f"of is {of!r}: choose ideal or total")
    busy = micro_batches * virtual_stages
    return (pp - 1) / (busy + (pp - 1 if of == "total" else 0))


# Ring collectives

RING_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def ring_steps(op, n):
    """Messages in a row that a collective over n ranks takes; an all-reduce goes round twice."""
    if op not in RING_ROUNDS:
        raise ValueError(f"op is {op!r}: choose one of {', '.join(RING_ROUNDS)}")
    return RING_ROUNDS[op] * (n - 1)


def ring_bytes(op, n, size):
    """Bytes that each rank sends. `size` is bytes of the whole buffer: n times a rank's shard.

    The whole buffer is what all-reduce starts and ends with, all-gather ends with, reduce-scatter
    starts with, and what one rank holds before all-to-all.

    >>> ring_bytes("all_reduce", n=8, size=1e9), ring_bytes("all_gather", n=8, size=8 * 125e6)
    (1750000000.0, 875000000.0)
    """
    return ring_steps(op, n) * size / n


def ring_seconds(op, n, size, bandwidth, latency=0):
    """Seconds: bytes over `bandwidth`, in bytes/s out of a rank, and `latency` seconds a step.

    >>> round(ring_seconds("all_reduce", n=8, size=1e9, bandwidth=100e9, latency=5e-6), 6)
    0.01757
    """
    return ring_bytes(op, n, size) / bandwidth + ring_steps(op, n) * latency


# Published runs: the tables in published/, described in its README.md

# What a cell may be: in words, as a pattern, and how it is read
TEXT = ("text", ".*", str)
COUNT = ("a whole number above 0", r"[1-9]\d*", int)
MAYBE = ("a number or nothing", r"(-?\d+(\.\d+)?)?", lambda cell: float(cell) if cell else None)
ABOVE = r"0*(?!0+(\.0*)?$)\d+(\.\d+)?"  # not 0
POSITIVE = ("a number above 0", ABOVE, float)
RESULT = ("a number above 0 or nothing", f"({ABOVE})?", MAYBE[2])
FLAG = ("0 or 1", "0|1", lambda cell: cell == "1")
RECOMPUTE = ("none, selective or full", "none|selective|full", str)
SPLIT = ("calibrate or predict", "calibrate|predict", str)

RUN_COLUMNS = {
    "id": TEXT, "system": TEXT, "model": TEXT,
    "n_embd": COUNT, "n_layer": COUNT, "n_head": COUNT, "n_vocab": COUNT, "n_ctx": COUNT,
    "gpu": TEXT, "peak_tflops": POSITIVE, "n_gpus": COUNT,
    "tp": COUNT, "pp": COUNT, "virtual_stages": COUNT, "dp": COUNT,
    "micro_batch": COUNT, "global_batch": COUNT,
    "recompute": RECOMPUTE, "sequence_parallel": FLAG, "flash_attention": FLAG,
    "seconds_per_step": RESULT, "mfu_percent": RESULT, "hfu_percent": RESULT,
    "tflops_per_gpu": RESULT,
    "split": SPLIT, "assumed": TEXT, "source": TEXT, "note": TEXT,
}  # fmt: skip
LAYER_COLUMNS = {
    "experiment": TEXT, "forward_ms": POSITIVE, "backward_ms": POSITIVE, "combined_ms": POSITIVE,
    "overhead_pct": MAYBE, "config": TEXT,
}  # fmt: skip
LayerTime = namedtuple("LayerTime", LAYER_COLUMNS)
PUBLISHED = Path(__file__).parent / "published"


class Run(namedtuple("Run", RUN_COLUMNS)):
    """A row of training_runs.csv; a result that was not printed is None."""

    @property
    def config(self):
        return Config(self.n_embd, self.n_head, self.n_layer, self.n_ctx, self.n_vocab)

    @property
    def aggregate_pflops(self):
        """The aggregate PFLOP/s that MegaScale's Table 2 prints beside the MFU, or None."""
        figure = self.note.partition("aggregate PF/s printed ")[2]
        return float(figure) if figure else None

    def percent(self, convention):
        """MFU or HFU in per cent, from the printed seconds per step."""
        flops = CONVENTIONS[convention].flops(self.config, self.global_batch)
        return 100 * mfu(flops, self.seconds_per_step, self.n_gpus, self.peak_tflops * 1e12)


def _rows(path, columns):
    """Of each row where it is and its values; a damaged row is a ValueError that says where."""
    path, first = Path(path), {}  # {name of a row: line}
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path.name}, line {line}: not UTF-8 text, {error.reason}") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    if next(reader, None) != list(columns):
        raise ValueError(f"{path.name}, line 1: the columns must be {','.join(columns)}")
    for cells in reader:
        where, values = f"{path.name}, line {reader.line_num}, column", []
        if len(cells) != len(columns):
            column = [*columns, "after the last"][min(len(cells), len(columns))]
            raise ValueError(f"{where} {column}: {len(cells)} cells, not {len(columns)}")
        for cell, (column, (words, pattern, read)) in zip(cells, columns.items(), strict=True):
            if not re.fullmatch(pattern, cell, re.ASCII):
                raise ValueError(f"{where} {column}: {cell!r} is not {words}")
            values.append(read(cell))
        line = first.setdefault(cells[0], reader.line_num)
        if line != reader.line_num:
            name = next(iter(columns))
            raise ValueError(f"{where} {name}: {cells[0]!r} is that of line {line} already")
        yield where, values
    if not first:
        raise ValueError(f"{path.name}, line 2: there must be a row below the columns' names")


def published_runs(path=PUBLISHED / "training_runs.csv"):
    """The published training runs, each a Run.

    >>> run = published_runs()[7]
    >>> run.id, run.mfu_percent, round(run.percent("korthikanti-mfu"), 1)
    ('ms_t2_MT_6144_12288', 41.2, 41.3)
    """
    runs = []
    for where, values in _rows(path, RUN_COLUMNS):
        run = Run(*values)
        if run.n_gpus != run.tp * run.pp * run.dp:
            raise ValueError(f"{where} n_gpus: it is not tp {run.tp} x pp {run.pp} x dp {run.dp}")
        if run.global_batch % (run.dp * run.micro_batch):
            by = f"dp {run.dp} x micro_batch {run.micro_batch}"
            raise ValueError(f"{where} global_batch: {run.global_batch} does not divide by {by}")
        try:
            gpu(run.gpu)
        except ValueError as error:
            raise ValueError(f"{where} gpu: {error}") from None
        if run.seconds_per_step is None and run.mfu_percent is None:
            raise ValueError(f"{where} mfu_percent: a row without seconds_per_step must have one")
        if run.seconds_per_step is None and run.split == "calibrate":
            raise ValueError(f"{where} seconds_per_step: a row to calibrate with must have it")
        runs.append(run)
    return runs


def layer_times(path=PUBLISHED / "layer_times_22b.csv"):
    """The measured times of one block of the 22B model, each a LayerTime in milliseconds."""
    return [LayerTime(*values) for _, values in _rows(path, LAYER_COLUMNS)]


def contradicting_runs(runs=None, tolerance=0.01):
    """Ids of the runs whose printed aggregate FLOP/s is not their MFU times the GPUs' peak.

    >>> contradicting_runs()
    ['ms_t2_MT_768_256', 'ms_t2_MT_768_512', 'ms_t2_MT_768_1024', 'ms_t2_MS_6144_12288']
    """
    ids = []
    for run in published_runs() if runs is None else runs:
        if run.aggregate_pflops:
            expected = run.mfu_percent / 100 * run.n_gpus * run.peak_tflops / 1e3  # PFLOP/s
            if abs(run.aggregate_pflops / expected - 1) > tolerance:
                ids.append(run.id)
    return ids
