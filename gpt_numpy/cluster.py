"""One training step of a whole cluster: the program that trains small models, without its numbers.

`pieces` runs the model's layers, as parallel.model splits them, for one micro-batch, on one device
whose tensor-parallel partners a mesh.StandIn plays. `replay` then plays the pipeline's schedule
with the seconds and bytes that the device metered, and `simulate` adds what happens once a step:
sums of gradients over dp, ZeRO's traffic, the optimizer. Ranks that do the same run once.

What is a formula here and not a program: communication between stages and over dp costs what
cost.Cost says of its bytes, and the two do not slow each other down; sums of gradients over the
micro-batches are fp32, added up by the matmuls that make them; overlapped communication over tp
comes in tiles, see `Tiled`; `fixed` and `stragglers` of cost.Constants have no program at all.
"""

import argparse
import json
from collections import deque
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import accumulate
from math import isfinite, log2, prod
from typing import NamedTuple

import numpy as np

from gpt_numpy import layers
from gpt_numpy.checkpoint import gpt2_shapes, unflatten
from gpt_numpy.cost import CONSTANTS, Constants, Cost
from gpt_numpy.device import Device
from gpt_numpy.flops import (
    CONVENTIONS,
    Config,
    check_config,
    mfu,
    model,
    n_params,
)
from gpt_numpy.hardware import GPU, GPUS, gpu
from gpt_numpy.mesh import StandIn
from gpt_numpy.optim import OPTIMIZERS, clip
from gpt_numpy.parallel import pipeline, tensor, zero
from gpt_numpy.parallel.model import Layout, check, split_layers

WEIGHT, GRADIENT = 2, 4  # bytes: bf16, and fp32 where gradients are added up, as in Megatron-LM
PARTS = ("matmul", "attention", "elementwise", "tp")  # of a layer's seconds; tp: waits for it
KERNELS = ("attend", "flash_attend", "cross_entropy", "gelu")  # fused everywhere
LOADING = 0.5  # of the fixed time is loading data, which "data" overlaps: assumed, not published


class Setup(NamedTuple):
    """A training step to simulate. Every field changes the program that runs, or its hardware."""

    config: Config
    layout: Layout
    global_batch: int  # sequences
    micro_batch: int = 1
    gpu: GPU = GPUS["a100"]
    flash: int = 0  # version of FlashAttention; 0: the weights [s, s] are held
    window: int | None = None  # of attention, in tokens
    parallel_block: bool = False
    fused: bool = True  # a layer norm is one kernel, not one for each of its operations
    overlap: frozenset = frozenset()  # of tp, pp, dp, data: what computing goes on behind
    optimizer: str = "adamw"
    constants: Constants = CONSTANTS


# What one rank does for one micro-batch


OWN = ("w", "h.", ("ln_f", "wte"), "ln_f")  # how the names of each piece's own arrays begin


class Piece(NamedTuple):
    """What a layer takes on a rank: embedding, block, head; or head beside embedding (pp 1)."""

    forward: np.ndarray  # [4] seconds, by PARTS
    backward: np.ndarray  # [4]
    flops: int  # of matmuls in both
    held: int  # bytes from its forward to its backward pass
    peaks: tuple  # bytes more than were held before, at most, in each
    n_params: int  # of this rank


class Tiled(StandIn):
    """A tp group that communicates in tiles, beside the matmul that makes or takes them.

    MegaScale's overlap (arXiv 2402.15627, section 3.2), with a tile for each rank, as a ring
    brings them: a matmul begins when the first one is there, and a tile leaves when it is made.
    """

    def _meet(self, work):
        if work.x.ndim < 2:
            return super()._meet(work)
        x, made = work.x._storage, work.x.ready
        if work.call != "all_gather":
            record = reversed(self.device.record)
            begun = next((start for _, name, start, _ in record if name == "matmul"), made)
            x.ready = begun + (made - begun) / self.size
        super()._meet(work)
        _, _, start, end = self.device.record[-1]
        tile = (end - start) / self.size
        first = start + tile if work.call == "all_gather" else max(end, made + tile)
        x.ready, work.result._storage.ready = made, first


def new_rank(setup):
    """One rank's device and its group tp, whose other ranks are not there."""
    device = Device(0, Cost(setup.gpu, setup.constants, setup.flash))
    names = [*KERNELS, "layer_norm"] if setup.fused else KERNELS
    device.fused = frozenset([*names, *[f"{name} backward" for name in names], "optimizer"])
    device.record, ranks = [], range(setup.layout.tp)
    if "tp" in setup.overlap:
        return device, Tiled("tp", ranks, 0, device, overlap=True)
    return device, StandIn("tp", ranks, 0, device)


def local_shapes(setup, n_layer):
    """The shapes of a tp rank's parts of a model's arrays, {published name: shape}."""
    c, tp = setup.config, setup.layout.tp
    n_rows = -(-c.n_vocab // tp) * tp  # the vocabulary is padded until it divides
    whole = gpt2_shapes(n_rows, c.n_ctx, c.n_embd, n_layer, setup.parallel_block)
    return {
        name: tuple(n // tp if i == tensor.split_axis(name) else n for i, n in enumerate(shape))
        for name, shape in whole.items()
    }


def metered(layer, device, rows):
    """The layer; of each pass (bytes held before, seconds [4], FLOPs, peak) go into `rows`."""

    def measure(function, *args):
        start, held = device.streams["compute"], device.held
        device.reset_meters()
        result = function(*args)
        seconds = dict.fromkeys(PARTS, 0.0)
        for name, (*_, busy) in device.kernels.items():
            name = "attention" if "attend" in name else name
            seconds[name if name in PARTS else "elementwise"] += busy
        seconds["tp"] = device.streams["compute"] - start - sum(seconds.values())
        rows.append((held, np.array([*seconds.values()]), device.matmul_flops, device.peak - held))
        return result

    def run(x, p, *args):
        y, back = measure(layer, x, p, *args)
        return y, partial(measure, back)

    return run


def run_model(setup, n_layer):
    """Run a model of `n_layer` blocks -> its device, and `metered` rows: forward, backward."""
    config, layout, rows = setup.config, setup.layout, []
    device, tp = new_rank(setup)
    with device.kind("weights"):
        arrays = {k: device.empty(s, "bf16") for k, s in local_shapes(setup, n_layer).items()}
    ids = device.empty((setup.micro_batch, config.n_ctx), "int64")
    tile = max(128, config.n_ctx // 64)  # FlashAttention's is 128; more than 64 are slow in Python
    flash = partial(layers.flash_attend, window=setup.window, tile=tile)
    split = split_layers(layout, tp, config.n_vocab, flash if setup.flash else layers.attend)
    split = layers.Layers(*[metered(layer, device, rows) for layer in split])
    params, n_head = unflatten(arrays), config.n_head // layout.tp
    _, back = layers.gpt2(
        ids, params, ids, 1, n_head, split, **{"window": setup.window} if setup.window else {}
    )
    rows.append((device.held,))
    back()
    return device, rows[:n_layer + 3], rows[:n_layer + 2:-1]


@lru_cache(maxsize=1 << 14)
def _pieces(setup):
    _, forward, backward = run_model(setup, 2)
    shapes = local_shapes(setup, 1)
    return [
        Piece(forward[i][1], backward[i][1], forward[i][2] + backward[i][2],
              forward[i + 1][0] - forward[i][0], (forward[i][3], backward[i][3]),
              sum(prod(shape) for name, shape in shapes.items() if name.startswith(names)))
        for i, names in zip((0, 2, 3, 3), OWN)
    ]  # fmt: skip


def pieces(setup):
    """The four kinds of Piece."""
    layout = Layout(tp=setup.layout.tp, sequence_parallel=setup.layout.sequence_parallel,
                    recompute=setup.layout.recompute)  # fmt: skip
    return _pieces(setup._replace(
        layout=layout, global_batch=0, overlap=setup.overlap & {"tp"}, optimizer=""
    ))  # fmt: skip


@lru_cache(maxsize=1 << 14)
def run_optimizer(setup, names, dp):
    """[seconds, bytes held] of the optimizer, of the arrays whose names begin so, 1/dp of each."""
    device, _ = new_rank(setup)
    shapes = {k: s for k, s in local_shapes(setup, 1).items() if k.startswith(names)}
    sizes = {name: zero.shard_size(prod(shape), dp) for name, shape in shapes.items()}
    grads = {name: device.empty(size) for name, size in sizes.items()}
    weights = {name: device.empty(size, "bf16") for name, size in sizes.items()}
    with device.kind("optimizer"):
        master = {name: device.empty(size) for name, size in sizes.items()}
        optimizer = OPTIMIZERS[setup.optimizer](master, decay=set())
    with ExitStack() as kernel:  # one kernel until a sum over all ranks, and one after it

        def total(sums):
            kernel.close()
            kernel.enter_context(device.kernel("optimizer"))
            return sums

        optimizer.total = total
        kernel.enter_context(device.kernel("optimizer"))
        clip(grads, 1.0, lambda squares: total(sum(squares.values())))
        optimizer.step(master, grads, lr=1e-4)
        for name, w in weights.items():
            w[...] = master[name].astype("bf16")
    return np.array([device.streams["compute"], device.held_by_kind["optimizer"]])


def optimizers(setup):
    """[seconds, bytes held] of the optimizer, for the arrays of each kind of Piece."""
    key = Setup(
        setup.config, Layout(tp=setup.layout.tp), 0, gpu=setup.gpu, optimizer=setup.optimizer,
        parallel_block=setup.parallel_block, constants=setup.constants,
    )  # fmt: skip
    dp = setup.layout.dp if setup.layout.zero else 1
    return [run_optimizer(key, names, dp) for names in OWN]


# The pipeline


class Chunk:
    """A chunk of the model on one stage: what its pieces take, added up."""

    def __init__(self, pieces, sent=0, gather=(), reduce=(), slow=1.0):
        """sent: bytes of its output. gather, reduce: s over dp of each piece's weights, gradients.

        slow: factor of computing, not of waits, which are another rank's affair.
        """
        self.parts = sum(p.forward + p.backward for p in pieces) * [slow, slow, slow, 1]  # [4]
        forward, backward = [
            [float(parts[:3].sum() * slow + parts[3]) for parts in one]
            for one in ([p.forward for p in pieces], [p.backward for p in pieces[::-1]])
        ]
        self.seconds = {"F": sum(forward), "B": sum(backward)}
        self.flops, sizes = sum(p.flops for p in pieces), [p.n_params for p in pieces]
        self.n_params, self.largest = sum(sizes), max(sizes)
        held = np.cumsum([p.held for p in pieces])
        peaks = np.array([p.peaks for p in pieces]).T + [[0, *held[:-1]], held - held[-1]]
        self.held, self.peaks = int(held[-1]), dict(zip("FB", peaks.max(axis=1).tolist()))
        self.sent, self.gather, self.reduce = sent, sum(gather), sum(reduce)
        # at which second of a pass it needs a piece's weights, or has its gradients; and how long
        # communicating these takes
        begins = {"F": accumulate(forward, initial=0), "B": accumulate(backward, initial=0)}
        order = {"F": gather, "B": gather[::-1]}
        self.needs = {kind: [*zip(begins[kind], order[kind])] for kind in "FB"}
        self.makes = [*zip(accumulate(backward), reduce[::-1])]


class Span(NamedTuple):
    """Something that takes time on a lane of a timeline."""

    lane: str
    kind: str  # one of timeline.KINDS
    name: str
    start: float  # s
    end: float  # s


class Stage:
    """One stage of a pipeline at work: its clock, its communication over dp, and its memory."""

    def __init__(self, number, chunks, zero, overlap, plan, spans):
        self.number, self.chunks, self.zero, self.overlap = number, chunks, zero, overlap
        self.plan, self.spans = deque(plan), spans
        self.clock = self.network = self.begun = 0.0  # computes until, communicates until, s
        self.pp = self.dp = 0.0  # s that it was held up by its sends, and by dp
        self.held = self.peak = 0  # bytes
        gathers = range(len(chunks) if zero in (1, 2) else 0)
        self.gathered = {c: self.gather("F", c, 0.0) for c in gathers}  # when a chunk can begin
        if "dp" not in overlap:
            self.wait(self.network)

    def span(self, kind, name, start, end, stream=""):
        if self.spans is not None and end > start:
            self.spans.append(Span(f"stage {self.number}{stream}", kind, name, start, end))

    def communicate(self, name, ready, seconds):
        """Communication over dp, one after the other; the moment of its end."""
        start = max(self.network, ready)
        self.network = start + seconds
        self.span(name.split()[0], name, start, self.network, " dp")
        return self.network

    def gather(self, kind, c, ready):
        """Fetch a chunk's weights; a pass that starts at this moment has each when it needs it."""
        needs = self.chunks[c].needs[kind]
        return max(
            (self.communicate(f"gather chunk {c}", ready, seconds) - at for at, seconds in needs),
            default=ready,
        )

    def wait(self, moment):
        """Wait for communication over dp."""
        self.span("wait", "wait for dp", self.clock, moment)
        self.dp += max(0.0, moment - self.clock)
        self.clock = max(self.clock, moment)

    def run(self, kind, i, c, arrival, last):
        """One action, its input there at `arrival`; the `last` of a chunk completes gradients."""
        chunk, overlapped = self.chunks[c], "dp" in self.overlap
        self.clock = max(self.clock, arrival)
        if self.zero == 3:  # weights are fetched while the action before runs, or only now
            there = self.gather(kind, c, self.begun if overlapped else self.clock)
            self.gathered[c] = there if overlapped else self.network
        self.wait(self.gathered.get(c, 0.0))
        self.begun = start = self.clock
        self.clock += chunk.seconds[kind]
        name = "forward" if kind == "F" else "backward"
        self.span(name, f"{name} {i}, chunk {c}", start, self.clock)
        self.peak = max(self.peak, self.held + chunk.peaks[kind])
        self.held += chunk.held if kind == "F" else -chunk.held
        if kind == "B" and (last or self.zero >= 2):
            if overlapped:
                for at, seconds in chunk.makes:
                    self.communicate(f"reduce chunk {c}", start + at, seconds)
            elif self.zero >= 2:
                self.wait(self.communicate(f"reduce chunk {c}", self.clock, chunk.reduce))

    def send(self, seconds):
        """The moment when an output has been sent."""
        arrival = self.clock + seconds
        if "pp" not in self.overlap:
            self.span("send", "send", self.clock, arrival)
            self.pp, self.clock = self.pp + seconds, arrival
        return arrival

    def finish(self):
        """Wait for the sums of all gradients."""
        if self.zero < 2 and "dp" not in self.overlap:
            self.communicate("reduce all", self.clock, sum(chunk.reduce for chunk in self.chunks))
        self.wait(self.network)


def replay(layout, micro_batches, chunks, send=lambda stage, nbytes: 0.0, overlap=(), spans=None):
    """Play a pipeline's schedule; `chunks` are in the model's order -> the stages, at their end.

    send     (stage, bytes) -> s from a stage to the next one, or back
    overlap  "pp": a stage computes on while its outputs are sent; "dp": likewise for communication
             over dp, which else comes first (weights) and last (gradients)
    """
    pp, m = layout.pp, micro_batches
    schedule = pipeline.SCHEDULES[layout.schedule]
    plans = [schedule(r, pp, m, layout.virtual_stages) for r in range(pp)]
    stages = [
        Stage(r, chunks[r::pp], layout.zero, overlap, plan, spans) for r, plan in enumerate(plans)
    ]
    sends = [send(i % pp, chunk.sent) for i, chunk in enumerate(chunks)]
    end = {"F": len(chunks) - 1, "B": 0}  # the chunk whose output nobody waits for
    arrived, waiting, ready = {}, {}, deque(range(pp))
    while ready:
        stage = stages[ready.popleft()]
        while stage.plan:
            kind, i, c = stage.plan[0]
            number = c * pp + stage.number
            key = kind, i, number
            if key not in arrived and number != end["B" if kind == "F" else "F"]:
                waiting[key] = stage.number
                break
            stage.plan.popleft()
            stage.run(kind, i, c, arrived.pop(key, 0.0), i == m - 1)
            if number != end[kind]:
                other = number + (1 if kind == "F" else -1)
                arrived[kind, i, other] = stage.send(sends[min(number, other)])
                if (kind, i, other) in waiting:
                    ready.append(waiting.pop((kind, i, other)))
    for stage in stages:
        stage.finish()
    return stages


# The step


class Simulation(NamedTuple):
    """A simulated training step."""

    setup: Setup
    seconds: float
    parts: dict  # {name: s} of the busiest stage; they add up to `seconds`
    memory: list  # {kind: bytes} of a rank of each stage
    flops: int  # of all matmuls of the step, on all GPUs

    gpus = property(lambda self: prod(self.setup.layout[:3]))
    fullest = property(lambda self: max(self.memory, key=lambda kinds: sum(kinds.values())))
    fits = property(lambda self: sum(self.fullest.values()) <= self.setup.gpu.memory)

    def percent(self, convention="korthikanti-mfu"):
        """MFU or HFU in per cent; "hfu" counts the FLOPs that the program did."""
        flops = self.flops
        if convention != "hfu":
            flops = CONVENTIONS[convention].flops(self.setup.config, self.setup.global_batch)
        return 100 * mfu(flops, self.seconds, self.gpus, self.setup.gpu.peak)


def check_setup(setup):
    """Micro-batches of each pipeline; a ValueError says what cannot be."""
    layout = setup.layout
    check(layout, check_config(setup.config), setup.global_batch, setup.micro_batch)
    m, rest = divmod(setup.global_batch, layout.dp * setup.micro_batch)
    if rest or not m:
        raise ValueError(
            f"a batch of {setup.global_batch} sequences does not divide by dp = {layout.dp} times"
            f" micro_batch = {setup.micro_batch}"
        )
    return m


def kinds(setup):
    """Of each chunk, in the model's order, which kinds of Piece it has."""
    layout = setup.layout
    places = pipeline.place(setup.config.n_layer, layout.pp, layout.virtual_stages)
    chunks = [[1] * len(place) for place in places]
    chunks[0].insert(0, 0)
    chunks[-1].append(2 if layout.pp > 1 else 3)
    return chunks


def over_dp(setup, cost):
    """Seconds over dp of each kind of Piece: to gather its weights, to sum its gradients."""
    layout = setup.layout
    ranks = range(0, prod(layout[:3]), layout.pp * layout.tp)
    sums = "reduce_scatter" if layout.zero else "all_reduce"
    sizes = [p.n_params for p in pieces(setup)]
    gathers = [cost.collective("all_gather", layout.dp, WEIGHT * n, ranks) for n in sizes]
    return gathers, [cost.collective(sums, layout.dp, GRADIENT * n, ranks) for n in sizes]


def send_time(setup, cost):
    """(stage, bytes) -> s to the next stage, of what a tp rank has of an output.

    If all have the whole, each sends a part, which are gathered: arXiv 2104.04473, section 4.1.
    """
    layout, tp = setup.layout, setup.layout.tp

    @lru_cache
    def send(stage, nbytes):
        ranks = stage * tp, (stage + 1) % layout.pp * tp
        if layout.sequence_parallel:
            return cost.collective("send", 2, nbytes, ranks)
        gather = cost.collective("all_gather", tp, nbytes, range(tp))
        return cost.collective("send", 2, nbytes / tp, ranks) + gather

    return send


def simulate(setup, slow=None, spans=None):
    """Simulate a training step.

    slow   {rank: factor of its computing time}, of stragglers
    spans  a list, to which what each stage does is added
    """
    config, layout = setup.config, setup.layout
    m, cost = check_setup(setup), Cost(setup.gpu, setup.constants, setup.flash)
    pp, tp = layout.pp, layout.tp
    made, (gathers, reduces) = pieces(setup), over_dp(setup, cost)
    tokens = setup.micro_batch * config.n_ctx // (tp if layout.sequence_parallel else 1)
    send = send_time(setup, cost)

    def play(slow):
        chunks = [
            Chunk([made[k] for k in chunk], WEIGHT * tokens * config.n_embd,
                  [gathers[k] for k in chunk], [reduces[k] for k in chunk], slow.get(i % pp, 1.0))
            for i, chunk in enumerate(kinds(setup))
        ]  # fmt: skip
        own = None if spans is None else []
        return replay(layout, m, chunks, send, setup.overlap, own), own

    replicas = {}  # {number: {stage: factor}}: those that stragglers hold up
    for rank, factor in (slow or {}).items():
        if not 0 <= rank < layout.dp * pp * tp:
            raise ValueError(f"there is no rank {rank} among {layout.dp * pp * tp} GPUs")
        number, stage = divmod(rank // tp, pp)
        factors = replicas.setdefault(number, {})
        factors[stage] = max(factor, factors.get(stage, 0.0))
    if len(replicas) < layout.dp:
        replicas["others"] = {}
    plays = [play(factors) for factors in replicas.values()]
    stages, own = max(plays, key=lambda played: max(stage.clock for stage in played[0]))
    if own:
        spans += own
    parts = once_a_step(setup, cost, m, stages, spans)
    memory = [memory_of(layout, stage, step) for stage, step in zip(stages, optimizer_of(setup))]
    flops = sum(chunk.flops for stage in stages for chunk in stage.chunks) * m * layout.dp * tp
    return Simulation(setup, sum(parts.values()), parts, memory, flops)


def memory_of(layout, stage, step):
    """{kind: bytes} of a stage's rank. With ZeRO 3, one piece's weights at a time are whole."""
    n, shared = sum(chunk.n_params for chunk in stage.chunks), [1 / layout.dp] * layout.zero
    whole = max(chunk.largest for chunk in stage.chunks) if layout.zero == 3 else 0
    shares = [*shared, 1, 1, 1][:3]  # of the optimizer's states, of gradients, of weights
    return {
        "weights": WEIGHT * (n * shares[2] + whole), "gradients": GRADIENT * n * shares[1],
        "optimizer": float(step[1]), "activations": stage.peak,
    }  # fmt: skip


def optimizer_of(setup):
    """[seconds, bytes held] of each stage's optimizer."""
    steps, chunks = optimizers(setup), kinds(setup)
    pp = setup.layout.pp
    return [sum(steps[k] for chunk in chunks[r::pp] for k in chunk) for r in range(pp)]


def once_a_step(setup, cost, m, stages, spans):
    """Where a step's seconds go on its busiest stage, with what follows the pipeline."""
    layout, gpus = setup.layout, prod(setup.layout[:3])
    last = max(stage.clock for stage in stages)
    if layout.pp > 1:  # both ends have the tied embedding, and add up its gradients
        nbytes = GRADIENT * prod(local_shapes(setup, 1)["wte.weight"])
        ends = 0, (layout.pp - 1) * layout.tp
        tied = cost.collective("all_reduce", 2, nbytes, ends)
        last = max(last, max(stages[0].clock, stages[-1].clock) + tied)
    busy = [m * sum(chunk.parts for chunk in stage.chunks) for stage in stages]  # [4] each
    r = int(np.argmax([sum(parts) for parts in busy]))
    parts = dict(zip(PARTS, map(float, busy[r]))) | {"pp": stages[r].pp, "dp": stages[r].dp}
    parts["bubble"] = max(0.0, last - sum(parts.values()))  # not -1e-17
    nodes = max(1, gpus / setup.gpu.node_size)
    parts["stragglers"] = setup.constants.stragglers * log2(nodes) * last
    parts["optimizer"] = max(float(seconds) for seconds, _ in optimizer_of(setup))
    parts["fixed"] = setup.constants.fixed * (nodes > 1)
    if "data" in setup.overlap:
        parts["fixed"] *= 1 - LOADING
    for stage in stages if spans is not None else []:
        start = last
        for name in ("stragglers", "optimizer", "fixed"):
            spans.append(Span(f"stage {stage.number}", name, name, start, start + parts[name]))
            start += parts[name]
    return parts


# The command line

MEGATRON = {"flash": 1, "fused": False}  # as MegaScale's paper describes it: section 3.2
TABLE_3 = {  # what each step of MegaScale's Table 3 changes; a window of 512 is assumed
    "baseline": {},
    "parallel block": {"parallel_block": True},
    "sliding window": {"window": 512},
    "tp overlap": {"overlap": frozenset(["tp"])},
    "pp overlap": {"overlap": frozenset(["tp", "pp"])},
    "dp overlap": {"overlap": frozenset(["tp", "pp", "dp"])},
    "efficient operators": {"fused": True, "flash": 2},
    "misc": {"overlap": frozenset(["tp", "pp", "dp", "data"])},
    "LAMB, batch x 3": {"optimizer": "lamb"},
}  # fmt: skip
MEGASCALE = {name: value for changes in TABLE_3.values() for name, value in changes.items()}


def table(rows):
    """Dicts with the same keys, as columns of text."""
    cells = [[*rows[0]]] + [
        ["" if x is None else f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]
    return "\n".join(lines)


def count(text):
    """A type for argparse: a whole number above 0."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def slow_rank(text):
    """A type for argparse: RANK=FACTOR."""
    try:
        rank, factor = text.split("=")
        rank, factor = int(rank), float(factor)
    except ValueError:
        factor = 0.0
    if not (isfinite(factor) and factor > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK=FACTOR, such as 7=1.2")
    return rank, factor


def overlaps(text):
    """A type for argparse: some of tp, pp, dp, data, with commas between."""
    names = frozenset(text.split(","))
    if not names <= {"tp", "pp", "dp", "data"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of tp, pp, dp, data: say tp,dp")
    return names


def add_model(parser):
    """The options of simulate and plan: a model, GPUs, and how the program is written."""
    add = parser.add_argument
    add("--model", help="a name, such as gpt3-175b; or say its shape:")
    for name in ("n-embd", "n-layer", "n-head", "n-ctx", "vocab"):
        add(f"--{name}", type=count, metavar="N", help="in place of the model's")
    add("--gpu", default="a100", help=f"one of {', '.join(GPUS)} (default: a100)")
    add("--gpus", type=count, required=True, metavar="N")
    add("--global-batch", type=count, required=True, metavar="N", help="sequences in a step")
    add("--flash", type=int, choices=[1, 2], nargs="?", const=2, default=0,
        help="FlashAttention, version 1 or 2 (--flash alone: 2)")  # fmt: skip
    add("--window", type=count, metavar="W",
        help="attention to the last W tokens only; needs --flash")  # fmt: skip
    add("--parallel-block", action="store_true", help="attention and MLP side by side")
    add("--fused", action="store_true", help="a layer norm is one kernel")
    add("--overlap", type=overlaps, default=frozenset(), metavar="tp,pp,dp,data",
        help="what computing goes on behind: communication, the loading of data")  # fmt: skip
    add("--optimizer", choices=[*OPTIMIZERS], default="adamw")
    add("--megascale", action="store_true", help="all that MegaScale does of these")
    add("--json", action="store_true", help="print one JSON object")


def setup_from(args, layout, micro_batch=1):
    """The Setup that the options of add_model describe."""
    shape = model(args.model)._asdict() if args.model else {"n_ctx": 2048, "n_vocab": 50257}
    for name in Config._fields:
        value = getattr(args, name.replace("n_vocab", "vocab"))
        shape |= {} if value is None else {name: value}
    missing = [f"--{k.replace('_', '-')}" for k in Config._fields if k not in shape]
    if missing:
        raise ValueError(f"which model? Give --model, or {', '.join(missing)}")
    names = ("flash", "window", "parallel_block", "fused", "overlap", "optimizer")
    options = {name: getattr(args, name) for name in names} | (MEGASCALE if args.megascale else {})
    config = check_config(Config(**shape))
    if options["window"] and not options["flash"]:
        raise ValueError("--window needs --flash: without it all of [s, s] is computed")
    return Setup(config, layout, args.global_batch, micro_batch, gpu(args.gpu), **options)


MICRO_BATCHES = 20_000  # more take too long to play, and tell nothing new


def add_simulate(parser):
    add_model(parser)
    add = parser.add_argument
    for name in ("tp", "pp", "virtual-stages", "micro-batch"):
        add(f"--{name}", type=count, default=1, metavar="N", help="(default: 1)")
    add("--schedule", choices=[*pipeline.SCHEDULES],
        help="(default: 1f1b, with virtual stages interleaved)")  # fmt: skip
    add("--zero", type=int, choices=[0, 1, 2, 3], help="(default: 0, with --megascale 1)")
    add("--sequence-parallel", action="store_true", help="(with --megascale: yes)")
    add("--recompute", choices=["none", "selective", "full"], default="none")
    add("--slow", type=slow_rank, action="append", default=[], metavar="RANK=1.2",
        help="a rank that computes slower; may be given several times (what it costs is shown as"
             " its stage's computing and as bubble, not as stragglers)")  # fmt: skip
    add("--svg", metavar="FILE", help="draw the step's timeline")
    add("--trace", metavar="FILE", help="write the timeline for Perfetto")


def main_simulate(args):
    """Print a simulated step -> its spans, for timeline.save, or None."""
    size = args.tp * args.pp
    dp, rest = divmod(args.gpus, size)
    if rest:
        near = f"{dp * size} or {(dp + 1) * size}" if dp else size
        raise ValueError(
            f"{args.gpus} GPUs are no multiple of tp {args.tp} x pp {args.pp} = {size}: say {near}"
        )
    schedule = args.schedule or ("interleaved" if args.virtual_stages > 1 else "1f1b")
    zero = int(args.megascale) if args.zero is None else args.zero
    split = args.tp > 1 and (args.sequence_parallel or args.megascale)
    layout = (dp, args.pp, args.tp, split, zero, schedule, args.virtual_stages, args.recompute)
    setup = setup_from(args, Layout(*layout), args.micro_batch)
    spans = [] if args.svg or args.trace else None
    if check_setup(setup) > MICRO_BATCHES:
        raise ValueError(
            f"{check_setup(setup):,} micro-batches in each pipeline are more than"
            f" {MICRO_BATCHES:,}: take more --gpus, a larger --micro-batch or less --global-batch"
        )
    slow = {}
    for rank, factor in args.slow:
        slow[rank] = max(factor, slow.get(rank, 0.0))
    step = simulate(setup, slow, spans)
    print(json.dumps(as_dict(step)) if args.json else as_text(step))
    return spans


def as_dict(step):
    """A Simulation for JSON."""
    setup, c = step.setup, step.setup.config
    tokens = setup.global_batch * c.n_ctx / step.seconds
    return {
        "model": c._asdict() | {"n_params": n_params(c, parallel_block=setup.parallel_block)},
        "gpu": setup.gpu.name, "gpus": step.gpus, "layout": setup.layout._asdict(),
        "global_batch": setup.global_batch, "micro_batch": setup.micro_batch,
        "seconds_per_step": step.seconds, "tokens_per_second": tokens,
        "days_for_300e9_tokens": 300e9 / tokens / 86400,
        "mfu_percent": {k: step.percent(k) for k, v in CONVENTIONS.items() if v.kind == "MFU"},
        "hfu_percent": step.percent("hfu"),
        "seconds": {name: max(0.0, seconds) for name, seconds in step.parts.items()},  # not -1e-17
        "memory_bytes": step.fullest, "fits": step.fits,
    }  # fmt: skip


def as_text(step):
    setup, layout, d = step.setup, step.setup.layout, as_dict(step)
    m = setup.global_batch // layout.dp // setup.micro_batch
    held = ", ".join(f"{kind} {size / 1e9:.1f}" for kind, size in step.fullest.items())
    advice = "try more of --tp, --pp, --zero 1, --sequence-parallel, --recompute, --flash"
    return "\n".join([
        f"{d['model']['n_params'] / 1e9:.1f} billion parameters, {step.gpus:,} {setup.gpu.name}:"
        f" dp {layout.dp} x pp {layout.pp} x tp {layout.tp}, {layout.schedule}",
        f"{setup.global_batch:,} sequences of {setup.config.n_ctx:,} tokens a step,"
        f" {m:,} micro-batches of {setup.micro_batch} in each pipeline\n",
        f"{step.seconds:.3f} s per step, {d['tokens_per_second']:,.0f} tokens/s,"
        f" 300 billion tokens in {d['days_for_300e9_tokens']:.1f} days",
        f"MFU {step.percent():.1f} % of all matmuls (korthikanti-mfu),"
        f" {step.percent('causal'):.1f} % with causal attention;"
        f" HFU {step.percent('hfu'):.1f} % of the FLOPs done",
        *["(Tiles of attention that are skipped are in that MFU, and not in the FLOPs done.)"]
        * (step.percent("hfu") < step.percent()),
        "",
        *[f"{name:12}{part:9.3f} s {100 * part / step.seconds:5.1f} %"
          f"  {'#' * round(50 * part / step.seconds)}" for name, part in d["seconds"].items()],
        f"\nGB of 1e9 bytes on a GPU of stage {step.memory.index(step.fullest)}: {held}, in all"
        f" {sum(step.fullest.values()) / 1e9:.1f} of {setup.gpu.memory / 1e9:g}: "
        + ("fits" if step.fits else f"DOES NOT FIT, {advice}"),
    ])  # fmt: skip


if __name__ == "__main__":
    from gpt_numpy.papers import main

    main()
