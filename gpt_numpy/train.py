"""The training loop: windows of a text, AdamW or LAMB, checkpoints that a killed run goes on from.

What a step does depends on nothing but the settings, the weights and the step's number: even its
batch is drawn by a random generator seeded with (seed, step). So a resumed run is the run that
was never stopped.
"""

import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from gpt_numpy import layers
from gpt_numpy.checkpoint import (
    flatten,
    gpt2_shapes,
    read_metadata,
    read_safetensors,
    save_gpt2,
    unflatten,
    write_safetensors,
)
from gpt_numpy.flops import Config, check_config, training_flops
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.optim import OPTIMIZERS, clip
from gpt_numpy.parallel.model import Model, check
from gpt_numpy.tokenizer import Tokenizer

STATE = "train.safetensors"


def setting(default, help, **arg):
    """A field of Settings: its default, a line of help, what the command line must know of it."""
    return field(default=default, metadata={"help": help, "arg": arg})


@dataclass
class Settings:
    """What determines a run; the command line's options are made from this list."""

    n_vocab: int = setting(512, "tokens in the vocabulary: 256 bytes, merges, <|endoftext|>",
                           low=257)
    n_embd: int = setting(64, "width", low=1)
    n_head: int = setting(4, "attention heads; they divide n_embd", low=1)
    n_layer: int = setting(2, "blocks", low=1, high=1000)
    n_ctx: int = setting(64, "tokens the model reads at once", low=1)
    parallel_block: bool = setting(False, "attention and MLP read the same layer norm (MegaScale)")
    steps: int = setting(200, "optimizer steps", low=0)
    batch: int = setting(8, "sequences of n_ctx tokens in a step", low=1)
    micro_batch: int = setting(0, "sequences that run through the model together; 0: all", low=0)
    optimizer: str = setting("adamw", "adamw or lamb", choices=["adamw", "lamb"])
    lr: float = setting(3e-3, "highest learning rate", low=0)
    warmup: int = setting(20, "steps in which the learning rate rises to it", low=0)
    final_lr: float = setting(0.1, "part of lr that a cosine falls to", low=0)
    weight_decay: float = setting(0.1, "of matrices, decoupled", low=0)
    max_norm: float = setting(1.0, "longer gradients are cut to it; 0: none are", low=0)
    held_out: float = setting(0.05, "last part of the text, to test on", low=0, high=0.5)
    dtype: str = setting("float32", "float32 or float64", choices=["float32", "float64"])
    seed: int = setting(0, "of the first weights and the batches", low=0)

    @property
    def config(self):
        sizes = self.n_embd, self.n_head, self.n_layer, self.n_ctx, self.n_vocab
        return check_config(Config(*sizes))


def init_params(config, dtype=np.float32, seed=0, parallel_block=False):
    """Random weights, normal with GPT-2's deviation 0.02.

    It is 1/sqrt(2 n_layer) of that for what is added to x.
    """
    rng = np.random.default_rng(seed)

    def init(name, shape):
        if len(shape) == 1:
            return np.full(shape, 1.0 if name.endswith("weight") else 0.0, dtype)
        deviation = 0.02 / (2 * config.n_layer) ** 0.5 if "c_proj" in name else 0.02
        return (rng.standard_normal(shape) * deviation).astype(dtype)

    sizes = config.n_vocab, config.n_ctx, config.n_embd, config.n_layer
    shapes = gpt2_shapes(*sizes, parallel_block)
    return unflatten({name: init(name, shape) for name, shape in shapes.items()})


def draw_batch(ids, batch, n_ctx, rng):
    """Random windows of the text: ids [n] -> tokens [b, n_ctx], and their successors [b, n_ctx].

    >>> rng = np.random.default_rng(0)
    >>> tokens, targets = draw_batch(np.arange(9), 1, 8, rng)  # there is just one window
    >>> tokens.tolist(), targets.tolist()
    ([[0, 1, 2, 3, 4, 5, 6, 7]], [[1, 2, 3, 4, 5, 6, 7, 8]])
    """
    if len(ids) <= n_ctx:
        raise ValueError(
            f"the text has {len(ids)} tokens: "
            f"a window of n_ctx = {n_ctx} needs {n_ctx + 1} at least"
        )
    starts = rng.integers(0, len(ids) - n_ctx, batch)  # [b]; the last is len - n_ctx - 1
    windows = ids[starts[:, None] + np.arange(n_ctx + 1)]  # [b, n_ctx + 1]
    return windows[:, :-1], windows[:, 1:]


def held_out_loss(params, n_head, ids, n_ctx):
    """Nats per token over a text, ids [n], cut into windows of n_ctx.

    Every token but the first is predicted once.
    """
    loss = 0.0
    for i in range(0, len(ids) - 1, n_ctx):
        window = ids[i : i + n_ctx + 1]
        tokens, targets = window[None, :-1], window[None, 1:]  # [1, s]
        loss += float(layers.gpt2(tokens, params, targets, len(ids) - 1, n_head)[0])
    return loss


def learning_rate(settings, step):
    """Steps count from 0: a linear rise over `warmup` steps, then a cosine to final_lr * lr."""
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * done))  # from 1 to 0
    return settings.lr * (settings.final_lr + (1 - settings.final_lr) * cosine)


class OneDevice:
    """A model in training on one device."""

    def __init__(self, params, settings):
        self.params, self.settings = params, settings
        self.weights = flatten(params)
        optimizer = OPTIMIZERS[settings.optimizer]
        self.optimizer = optimizer(self.weights, weight_decay=settings.weight_decay)

    def step(self, tokens, targets, lr):
        """A step on a global batch, ids [b, s] -> its loss, and its gradient's norm unclipped."""
        total = max(1, int((targets >= 0).sum()))
        size = self.settings.micro_batch or len(tokens)
        loss, grads = 0.0, None
        for i in range(0, len(tokens), size):
            x, y = tokens[i : i + size], targets[i : i + size]  # each [micro_batch, s]
            part, back = layers.gpt2(x, self.params, y, total, self.settings.n_head)  # []
            loss += float(part)
            part = flatten(back()[1])
            grads = {name: grads[name] + g for name, g in part.items()} if grads else part
        norm = float(clip(grads, self.settings.max_norm or math.inf))
        self.optimizer.step(self.weights, grads, lr)
        return loss, norm

    def state(self):
        """All that a checkpoint must hold, whole arrays by name."""
        optimizer = self.optimizer
        moments = {f"{k}.{name}": a for k in "mv" for name, a in getattr(optimizer, k).items()}
        return self.weights | moments | {"t": np.array(optimizer.t)}

    def load(self, state):
        """Take over what `state` gave."""
        for name, a in self.state().items():
            if name != "t":
                a[...] = state[name]
        self.optimizer.t = int(state["t"])


def matmul_rate(dtype, size=1024, runs=5):
    """FLOP/s that this machine reaches in a large matrix product: MFU is a part of it."""
    a = np.ones((size, size), dtype)  # [size, size]
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def start(out, text, settings):
    """Begin a run in the folder `out`, where no other is: the tokenizer."""
    for name, advice in [(STATE, "add --resume to go on from it, or "), ("model.safetensors", "")]:
        if (out / name).exists():
            raise ValueError(f"{out / name} exists: {advice}choose another --out")
    tokenizer = Tokenizer.train(text, settings.n_vocab)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(out / "merges.txt")


def recorded(text, settings):
    """What a checkpoint says of its run: all of it must be the same when the run goes on."""
    return asdict(settings) | {"text": hashlib.sha256(text.encode()).hexdigest()}


def go_on(out, text, settings):
    """The state of a run in the folder `out`, if it is the run of this text and these settings."""
    path = out / STATE
    if not path.exists():
        raise ValueError(
            f"{path} does not exist, so there is nothing to resume: run without --resume"
        )
    # copies, for Windows replaces no file that is mapped
    state = {name: a.copy() for name, a in read_safetensors(path).items()}
    try:
        found = dict(json.loads(read_metadata(path)["settings"]))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} says no settings: it is no run of this program") from None
    for name, value in recorded(text, settings).items():
        if found.get(name) != value and name not in ("steps", "micro_batch"):
            was, now = ("another one", "this one") if name == "text" else (found.get(name), value)
            raise ValueError(f"{path} was trained with {name} = {was}, it cannot go on with {now}")
    check_state(path, state, settings)
    return state


def check_state(path, state, settings):
    """Refuse a state that lacks an array, or has it in another shape."""
    n_vocab, n_ctx, d = settings.n_vocab, settings.n_ctx, settings.n_embd
    shapes = gpt2_shapes(n_vocab, n_ctx, d, settings.n_layer, settings.parallel_block)
    expected = {kind + name: shape for name, shape in shapes.items() for kind in ("", "m.", "v.")}
    steps = state.get("t")
    expected |= {"t": (), "losses": (int(steps),) if np.ndim(steps) == 0 and steps else (0,)}
    for name, shape in expected.items():
        a = state.get(name)
        if a is None or a.shape != shape or a.dtype.kind != ("i" if name == "t" else "f"):
            raise ValueError(f"{path} is damaged: {name} should be of shape {shape}, it is "
                             + ("missing" if a is None else f"{a.shape} {a.dtype}"))


def loop(model, ids, settings, losses, save_every=0, save=None):
    """Train from step len(losses) on, adding to `losses`; returns the final figures.

    Every rank of a mesh runs this. One of them shows the bar and has `save(state, losses)`, called
    now and then.
    """
    from tqdm import tqdm

    figures, begun, clock = {}, len(losses), time.perf_counter()
    peak = matmul_rate(settings.dtype) if save else 0
    flops = training_flops(settings.config, settings.batch)
    with tqdm(initial=begun, total=settings.steps, unit="step", disable=not save) as bar:
        for step in range(begun, settings.steps):
            if save_every and step % save_every == 0:
                state = model.state()
                if save:
                    save(state, losses)
            rng = np.random.default_rng((settings.seed, step))
            tokens, targets = draw_batch(ids, settings.batch, settings.n_ctx, rng)  # [b, n_ctx]
            loss, _ = model.step(tokens, targets, learning_rate(settings, step))
            if not math.isfinite(loss):
                raise ValueError(f"step {step} has a loss of {loss}: try a lower lr")
            losses.append(loss)
            if save:
                seconds = (time.perf_counter() - clock) / (len(losses) - begun)
                figures = {
                    "tokens_per_second": tokens.size / seconds,
                    "mfu": flops / seconds / peak,
                }
                rates = "{:,.0f} tokens/s, MFU {:.0%}".format(*figures.values())
                bar.set_postfix_str(f"loss {loss:.3f}, {rates}", refresh=False)
                bar.update()
    return figures | {"matmul_flops_per_second": peak}


def train(text, out, settings, resume=False, save_every=100, half=False, layout=None, mpi=False):
    """Train on a text -> {"losses": by step, ...final figures}. The folder `out` then holds

    merges.txt         the tokenizer
    train.safetensors  weights, optimizer, losses by step, settings: all that --resume needs, every
                       `save_every` steps
    model.safetensors  the trained weights, in float16 if `half`

    With a layout (parallel.model.Layout) the model is split over a mesh of simulated devices, or
    of MPI's processes; "ranks" then has what each of them held, computed and sent in the last
    step.
    """
    out, config = Path(out), settings.config
    leads, execute = True, run
    if layout:
        check(layout, config, settings.batch, settings.micro_batch)
    if mpi:
        from gpt_numpy import mpi

        leads, execute = mpi.rank()[0] == 0, mpi.run
        mpi.check(layout.dp * layout.pp * layout.tp)
    if leads and not resume:
        start(out, text, settings)
    if mpi:
        mpi.barrier()  # now process 0 has made the folder
    state = go_on(out, text, settings) if resume else None
    tokenizer = Tokenizer.from_file(out / "merges.txt")
    if tokenizer.n_vocab != settings.n_vocab:
        raise ValueError(f"{out / 'merges.txt'} has {tokenizer.n_vocab} tokens, the model "
                         f"{settings.n_vocab}: it is another run's")
    cut = len(text) - int(len(text) * settings.held_out)
    ids = np.array(tokenizer.encode(text[:cut]), np.int64)  # [n]
    held_out = np.array(tokenizer.encode(text[cut:]), np.int64)  # [n]
    draw_batch(ids, 1, settings.n_ctx, np.random.default_rng())  # is the text long enough?
    params = init_params(config, settings.dtype, settings.seed, settings.parallel_block)

    def save(state, losses):
        tensors = state | {"losses": np.array(losses, np.float64)}
        write_safetensors(out / STATE, tensors, {"settings": json.dumps(recorded(text, settings))})

    def program(rank):
        model = Model(rank, params, settings, layout) if layout else OneDevice(params, settings)
        losses = state["losses"].tolist() if state else []
        if state:
            model.load(state)
        first = not layout or rank.world.rank == 0
        figures = loop(model, ids, settings, losses, save_every, save if first else None)
        report = model.report() if layout else None
        return losses, figures, report, model.state()

    mesh = Mesh(layout.dp, layout.pp, layout.tp) if layout else None
    results = execute(program, mesh) if layout else [program(None)]
    if not leads:
        return None
    losses, figures, _, state = results[0]
    save(state, losses)
    weights = {name: state[name] for name in flatten(params)}
    dtype = np.float16 if half else settings.dtype
    stored = {name: w.astype(dtype) for name, w in weights.items()}
    save_gpt2(out, unflatten(stored), config.n_head)
    test = None
    if len(held_out) > 1:
        test = held_out_loss(unflatten(weights), config.n_head, held_out, config.n_ctx)
    ranks = [report for _, _, report, _ in results] if layout else []
    return {"losses": losses, "held_out_loss": test, **figures, "ranks": ranks}
