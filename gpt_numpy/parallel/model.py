"""All strategies together: a model in training on one rank of a mesh.

Each strategy replaces layers, or a reduction.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from gpt_numpy import gpt2, layers
from gpt_numpy.checkpoint import flatten, unflatten
from gpt_numpy.optim import OPTIMIZERS, clip, decayed
from gpt_numpy.parallel import data, pipeline, sequence, tensor, zero


class Layout(NamedTuple):
    """How a model is split over dp * pp * tp ranks."""

    dp: int = 1
    pp: int = 1
    tp: int = 1
    sequence_parallel: bool = False
    zero: int = 0  # stage, 0 to 3
    schedule: str = "1f1b"  # or gpipe, interleaved
    virtual_stages: int = 1  # chunks of the model on each pipeline stage
    recompute: str = "none"  # or selective: attention's weights; full: whole blocks


def check(layout, config, batch, micro_batch=0):
    """Refuse what cannot work, before anything is allocated; the ValueError says what would."""
    tensor.check(config, layout.tp)
    pipeline.place(config.n_layer, layout.pp, layout.virtual_stages)
    if layout.pp == 1 and layout.virtual_stages > 1:
        raise ValueError(f"virtual_stages = {layout.virtual_stages} needs a pipeline, but pp is 1")
    if batch % layout.dp:
        raise ValueError(f"a batch of {batch} sequences does not divide by dp = {layout.dp}")
    own = batch // layout.dp
    size = micro_batch or own
    for b in {min(size, own), own % size or size} if layout.sequence_parallel else ():
        if b * config.n_ctx % layout.tp:
            raise ValueError(
                f"sequence parallel: a micro-batch of {b} x {config.n_ctx} tokens does not "
                f"divide by tp = {layout.tp}"
            )
    pipeline.schedule(layout.schedule, 0, layout.pp, -(-own // size), layout.virtual_stages)


def split_layers(layout, tp, n_vocab, attend=layers.attend):
    """One device's layers, replaced by those that a rank of the group tp runs."""
    split = sequence if layout.sequence_parallel else tensor
    enter, leave = split.enter(tp), split.leave(tp)
    positions = tensor.positions
    if layout.sequence_parallel:
        positions = partial(sequence.positions, tp=tp)
    attend = layers.recompute(attend) if layout.recompute == "selective" else attend
    block = partial(layers.block, enter=enter, leave=leave, attend=attend)
    loss = partial(tensor.cross_entropy, tp=tp, n_vocab=n_vocab)
    return layers.Layers(
        embedding=partial(tensor.embedding, tp=tp, leave=leave, positions=positions),
        block=layers.recompute(block) if layout.recompute == "full" else block,
        head=partial(layers.head, enter=enter, loss=loss),
    )


def forward(rank, params, tokens, n_head):
    """gpt2.gpt2 on one rank of a mesh: ids [b, s] -> on the last stage logits [b/dp, s, v].

    params is the whole model, of which the rank takes its part; earlier stages return None.
    """
    dp, pp, tp, put = rank.dp, rank.pp, rank.tp, rank.device.put
    whole = flatten(params)
    places = pipeline.place(len(params["blocks"]), pp.size)
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    mine = [f"h.{i}." for i in places[pp.rank]]
    mine += ["wte.", "wpe."] * first + ["wte.", "ln_f."] * last
    p = unflatten({
        name: put(tensor.split(name, w, tp.size)[tp.rank])
        for name, w in whole.items() if name.startswith(tuple(mine))
    })  # fmt: skip
    tokens = put(np.split(np.array(tokens), dp.size)[dp.rank])  # [b/dp, s]
    b, s = tokens.shape
    enter, leave = tensor.enter(tp).forward, tensor.leave(tp).forward
    if first:
        x, _ = tensor.embedding(tokens, p, tp, tensor.leave(tp))  # [n, d]
        x = x.reshape(b, s, -1)  # [b/dp, s, d]
    else:
        x = pp.recv(pp.rank - 1)  # [b/dp, s, d]
    mask = gpt2.attention_mask(s, s, x)  # [s, s]
    for part in p["blocks"]:
        how = {"n_head": n_head // tp.size, "mask": mask, "enter": enter, "leave": leave}
        x = gpt2.block(x, **part, **how)  # [b/dp, s, d]
    if not last:
        return pp.send(x, pp.rank + 1)
    logits = gpt2.layer_norm(x, **p["ln_f"]) @ p["wte"].T  # [b/dp, s, v/tp]
    return tp.all_gather(logits, axis=-1)[..., : len(params["wte"])]


class Model:
    """On one rank of a mesh, what train.OneDevice is on one device: `step`, `state` and `load`."""

    def __init__(self, rank, params, settings, layout):
        """params: the whole model, of which the rank takes its part."""
        self.rank, self.settings, self.layout = rank, settings, layout
        self.config = settings.config
        check(layout, self.config, settings.batch, settings.micro_batch)
        whole = flatten(params)
        self.shapes = {name: a.shape for name, a in whole.items()}
        self.places = pipeline.place(self.config.n_layer, layout.pp, layout.virtual_stages)
        self.numbers = range(rank.pp.rank, len(self.places), layout.pp)  # of this rank's chunks
        with rank.device.kind("weights"):
            used = [name for name in whole if self.uses(name)]
            self.weights = {name: self.part(name, whole[name]) for name in used}
        self.part_shapes = {name: w.shape for name, w in self.weights.items()}
        self.chunks, self.prefixes = [], {}
        for number in self.numbers:
            used = [name for name in self.weights if number in self.users(name)]
            tree = unflatten({name: self.weights[name] for name in used})
            self.chunks.append(tree)
            blocks = zip(self.places[number], tree["blocks"])
            self.prefixes |= {id(p): f"h.{i}." for i, p in blocks}
        if layout.zero == 3:
            with rank.device.kind("weights"):
                self.weights = {name: zero.shard(w, rank.dp) for name, w in self.weights.items()}
            for tree in self.chunks:
                zero.fill(tree, {})
        with rank.device.kind("optimizer"):
            optimizer, rate = OPTIMIZERS[settings.optimizer], settings.weight_decay
            self.optimizer = optimizer(self.trained(), weight_decay=rate, decay=decayed(whole))
        self.optimizer.total = self.total_by_name
        self.layers, self.in_flight = self.replace_layers(), 0

    def users(self, name):
        """The numbers of the chunks that use a weight.

        The tied embedding has two users, which may be one chunk.
        """
        last = len(self.places) - 1
        if name.startswith("h."):
            i = int(name.split(".")[1])
            return [number for number, blocks in enumerate(self.places) if i in blocks]
        return {"wte.weight": [0, last], "wpe.weight": [0]}.get(name, [last])

    def uses(self, name):
        """How many of a weight's users this rank has."""
        return sum(number in self.numbers for number in self.users(name))

    def part(self, name, whole):
        """This rank's part of a whole array of the model, on its device."""
        tp = self.rank.tp
        return self.rank.device.put(tensor.split(name, np.asarray(whole), tp.size)[tp.rank])

    def trained(self):
        """What this rank's optimizer moves: its weights, or its shards of them."""
        if self.layout.zero in (1, 2):
            return {name: zero.shard(w, self.rank.dp) for name, w in self.weights.items()}
        return self.weights

    def replace_layers(self):
        replaced = split_layers(self.layout, self.rank.tp, self.config.n_vocab)
        if self.layout.zero == 3:
            replaced = [zero.gathered(layer, self.gather, self.release) for layer in replaced]
        return layers.Layers(*[data.handing_over(layer, self.add) for layer in replaced])

    def gather(self, p):
        prefix = self.prefixes.get(id(p), "")
        with self.rank.device.kind("weights"):
            shards = {name: self.weights[name] for name in flatten(p, prefix)}
            zero.fill(p, zero.all_gather(shards, self.part_shapes, self.rank.dp), prefix)

    def release(self, p):
        zero.fill(p, {})

    def add(self, p, grads):
        grads = flatten(grads, self.prefixes.get(id(p), ""))
        self.gradients.add(self.labelled(grads))

    def labelled(self, grads):
        """The same arrays, whose memory counts as that of gradients."""
        return {name: self.rank.device.label(g, "gradients") for name, g in grads.items()}

    def reduce(self, grads):
        """Start the reduction of a bucket of gradients over dp."""
        if self.layout.sequence_parallel:
            grads = sequence.reduce_partial(grads, self.rank.tp)
        start = zero.reduce_scatter if self.layout.zero else data.all_reduce
        wait = start(grads, self.rank.dp)
        return lambda: self.labelled(wait())

    def step(self, tokens, targets, lr):
        """A step on a global batch, ids [b, s] -> its loss, and its gradient's norm unclipped."""
        rank, layout = self.rank, self.layout
        rank.device.reset_meters()
        tokens = np.split(tokens, layout.dp)[rank.dp.rank]  # [b/dp, s]
        targets = np.split(targets, layout.dp)[rank.dp.rank]  # [b/dp, s]
        count = rank.dp.all_reduce(rank.device.put((targets >= 0).sum()))
        total = max(1, int(count))  # of the whole batch: what gradients are divided by
        size = self.settings.micro_batch or len(tokens)
        cuts = range(0, len(tokens), size)
        put = rank.device.put
        micro_batches = [(put(tokens[i : i + size]), put(targets[i : i + size])) for i in cuts]

        def forward(i, chunk, x):
            tokens, targets = micro_batches[i]  # each [micro_batch, s]
            x = tokens if x is None else x
            n_head = self.config.n_head // layout.tp
            return layers.gpt2(x, self.chunks[chunk], targets, total, n_head, self.layers)

        times = 1 if layout.zero >= 2 else len(micro_batches)
        uses = {name: times * self.uses(name) for name in self.weights}
        self.gradients = data.Gradients(uses, self.reduce)
        actions = pipeline.schedule(
            layout.schedule, rank.pp.rank, layout.pp, len(micro_batches), layout.virtual_stages
        )
        losses, self.in_flight = pipeline.play(actions, rank.pp, layout.virtual_stages, forward)
        grads = self.gradients.wait()
        self.sum_tied(grads)
        norm = clip(grads, self.settings.max_norm or math.inf, self.total)
        trained = self.trained()
        self.optimizer.step(trained, grads, lr)
        if layout.zero in (1, 2):
            for name, w in zero.all_gather(trained, self.part_shapes, rank.dp).items():
                self.weights[name][...] = w
        losses = losses or [put(np.zeros((), self.settings.dtype))]  # only the last stage has any
        loss = sum(losses[1:], losses[0])  # []
        return float(rank.dp.all_reduce(rank.pp.all_reduce(loss))), float(norm)

    def sum_tied(self, grads):
        """The first and the last stage have the tied embedding: each adds the other's gradient."""
        pp, name = self.rank.pp, "wte.weight"
        if pp.size > 1 and name in grads:
            other = pp.size - 1 if pp.rank == 0 else 0
            sent = pp.isend(grads[name], other, tag="tied")
            grads[name] = grads[name] + pp.recv(other, tag="tied")
            sent.wait()

    def total(self, squares):
        """Square sums of this rank's gradients, {name: []} -> of all gradients, each once, []."""
        tp, pp, dp = self.rank.tp, self.rank.pp, self.rank.dp
        counted = [
            square
            for name, square in squares.items()
            if (tensor.split_axis(name) is not None or tp.rank == 0)  # else all of tp have it
            and not (name == "wte.weight" and pp.rank > 0)  # the first stage has it, too
        ]
        square = sum(counted[1:], counted[0]) if counted else self.rank.device.put(np.zeros(()))
        square = pp.all_reduce(tp.all_reduce(square))
        return dp.all_reduce(square) if self.layout.zero else square

    def total_by_name(self, sums):
        """Sums over this rank's parts of arrays, {name: []} -> over the whole arrays, for LAMB."""
        tp, dp = self.rank.tp, self.rank.dp
        split = {name: sums[name] for name in sums if tensor.split_axis(name) is not None}
        sums = sums | data.unpack(tp.all_reduce(data.pack(split)), data.shapes_of(split))
        if self.layout.zero:
            sums = data.unpack(dp.all_reduce(data.pack(sums)), data.shapes_of(sums))
        return sums

    def report(self):
        """What this rank held, computed and sent in its last step: bytes and FLOPs."""
        device = self.rank.device
        place = {axis: getattr(self.rank, axis).rank for axis in ("dp", "pp", "tp")}
        return {
            "rank": self.rank.rank, **place, "in_flight": self.in_flight,
            "matmul_flops": device.matmul_flops, "other_flops": device.other_flops,
            "peak_bytes": device.peak, "peak_bytes_by_kind": dict(device.peak_by_kind),
            "sent_bytes": dict(device.sent), "received_bytes": dict(device.received),
        }

    def state(self):
        """All that a checkpoint holds, whole arrays by name, as OneDevice has it.

        It is whole on rank 0, to which all others send.
        """
        rank, state = self.rank, {"t": np.array(self.optimizer.t)}
        kinds = {"": self.weights, "m.": self.optimizer.m, "v.": self.optimizer.v}
        for name, kind in [(name, kind) for kind in kinds for name in self.shapes]:
            owner = self.users(name)[0] % self.layout.pp
            if rank.pp.rank == owner:
                x = kinds[kind][name]
                if self.layout.zero == 3 or (self.layout.zero and kind):
                    x = zero.all_gather({name: x}, self.part_shapes, rank.dp)[name]
                x = rank.tp.all_gather(x[None])  # [tp, ...]
                if owner and rank.dp.rank == rank.tp.rank == 0:
                    rank.pp.send(x, 0)
            elif rank.world.rank == 0:
                x = rank.pp.recv(owner)
            if rank.world.rank == 0:
                state[kind + name] = tensor.join(name, list(x.numpy()), self.config.n_vocab)
        return state

    def load(self, state):
        """Take this rank's part of what `state` gave, under whatever layout."""
        self.optimizer.t = int(state["t"])
        kinds = {"": self.weights, "m.": self.optimizer.m, "v.": self.optimizer.v}
        for kind, arrays in kinds.items():
            for name, x in arrays.items():
                new = self.part(name, state[kind + name])
                if self.layout.zero == 3 or (self.layout.zero and kind):
                    new = zero.shard(new, self.rank.dp)
                x[...] = new
