"""The simulated step, against closed forms, runs with numbers, and what papers printed.

Oracles: flops.py's closed forms, which are tested by themselves; hand-worked examples; the same
program run on a real mesh. Cases sim-04 (bytes in flight) and par-07 (makespans).
"""

import argparse
import json
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from gpt_numpy import cluster, flops, layers, papers, plan
from gpt_numpy.checkpoint import flatten, unflatten
from gpt_numpy.cluster import Chunk, Piece, Setup, pieces, replay, run_model, simulate
from gpt_numpy.cost import CONSTANTS, PRIOR, Cost
from gpt_numpy.device import Device
from gpt_numpy.flops import (
    Config,
    activation_bytes,
    in_flight,
    model,
    n_params,
    pipeline_seconds,
    published_runs,
    state_bytes,
    training_flops,
)
from gpt_numpy.hardware import GPUS
from gpt_numpy.mesh import Mesh, StandIn, run
from gpt_numpy.parallel import data, pipeline, tensor, zero
from gpt_numpy.parallel.model import Layout, split_layers
from gpt_numpy.train import init_params

GPT3 = model("gpt3-175b")._replace(n_vocab=51200)
SMALL = Config(n_embd=64, n_head=4, n_layer=8, n_ctx=32, n_vocab=96)
SPLIT = Layout(dp=2, pp=4, tp=2, sequence_parallel=True, schedule="1f1b")


def equal_chunks(pp, v, forward, backward):
    """Chunks of a stage that takes `forward` and `backward` for all of its v chunks."""
    f, b = np.zeros(4), np.zeros(4)
    f[0], b[0] = forward / v, backward / v
    return [Chunk([Piece(f, b, 0, held=1, peaks=(1, 0), n_params=1)])] * (pp * v)


def layout(pp, v, schedule=None):
    schedule = schedule or ("interleaved" if v > 1 else "1f1b")
    return Layout(pp=pp, schedule=schedule, virtual_stages=v)


# The pipeline


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp, m", [*product([1, 2, 3, 4, 8], [1, 2, 3, 8, 32])])
def test_gpipe_and_1f1b_take_their_closed_forms_time(schedule, pp, m):
    for f, b in ((1, 2), (3, 1), (5, 5)):
        stages = replay(layout(pp, 1, schedule), m, equal_chunks(pp, 1, f, b))
        assert max(s.clock for s in stages) == pipeline_seconds(pp, m, f, b)
        assert [s.peak for s in stages] == in_flight(schedule, pp, m)


@pytest.mark.parametrize("pp, v, rounds", [*product([2, 4, 8], [2, 3, 6], [1, 2, 5])])
def test_interleaved_takes_its_closed_forms_time(pp, v, rounds):
    stages = replay(layout(pp, v), rounds * pp, equal_chunks(pp, v, 6, 12))
    assert max(s.clock for s in stages) == pipeline_seconds(pp, rounds * pp, 6, 12, v)
    assert [s.peak for s in stages] == in_flight("interleaved", pp, rounds * pp, v)


def test_makespans_and_bytes_in_flight_of_the_case():
    clock = [replay(layout(4, 1), m, equal_chunks(4, 1, 1, 2)) for m in (2, 8)]
    assert [max(s.clock for s in stages) for stages in clock] == [15, 33]
    assert [[s.peak for s in stages] for stages in clock] == [[2, 2, 2, 1], [4, 3, 2, 1]]
    stages = replay(layout(4, 2), 8, equal_chunks(4, 2, 2, 4))
    assert max(s.clock for s in stages) == 57 and [s.peak for s in stages] == [11, 9, 7, 5]
    with pytest.raises(ValueError, match="6 micro-batches do not divide by pp = 4"):
        replay(layout(4, 2), 6, equal_chunks(4, 2, 2, 4))


@pytest.mark.parametrize("pp, v, m", [(4, 1, 8), (4, 1, 2), (2, 1, 5), (4, 2, 8), (8, 3, 16)])
@pytest.mark.parametrize("c", [0.125, 0.5, 2.0])
def test_sends_cost_no_more_than_if_each_lengthened_its_action(pp, v, m, c):
    chunks = equal_chunks(pp, v, 4 * v, 8 * v)
    ideal = pipeline_seconds(pp, m, 4 * v, 8 * v, v)
    bound = pipeline_seconds(pp, m, (4 + c) * v, (8 + c) * v, v)
    times = [
        max(s.clock for s in replay(layout(pp, v), m, chunks, lambda stage, n: c, overlap))
        for overlap in ((), ("pp",))
    ]
    assert all(ideal < time <= bound for time in times), (ideal, times, bound)
    path = 2 * (pp * v - 1) * c  # one micro-batch goes through all chunks and back
    alone = replay(layout(pp, 1), 1, equal_chunks(pp, 1, 1, 1), lambda stage, n: c, ("pp",))
    assert max(s.clock for s in alone) == 2 * pp + path if v == 1 else True


@pytest.mark.parametrize("pp, v", [(4, 1), (8, 2), (8, 6)])
def test_a_steps_time_is_affine_in_the_micro_batches(pp, v):
    """SC21, section 2: T = t (m + (p - 1) / v) + C, here with C = 0."""
    for m in range(pp, 6 * pp, pp):
        stages = replay(layout(pp, v), m, equal_chunks(pp, v, 4 * v, 8 * v))
        assert max(s.clock for s in stages) == 12 * v * (m + (pp - 1) / v)


def test_whole_steps_are_affine_too_with_all_their_communication():
    base = Setup(GPT3, Layout(2, 8, 8, True, 1, "interleaved", 6), 0, flash=2)
    steps = [simulate(base._replace(global_batch=2 * 8 * k)) for k in (2, 3, 4, 9)]
    times = [step.seconds for step in steps]
    assert times[1] - times[0] == pytest.approx(times[2] - times[1], rel=1e-9)
    assert times[3] - times[2] == pytest.approx(5 * (times[1] - times[0]), rel=1e-9)


class MatmulsOnly:
    """A cost by which only matmuls take time, and communication none."""

    def kernel(self, name, matmuls, flops, nbytes, dtype):
        return float(sum(b * m * n * k for b, m, n, k in matmuls))

    def collective(self, name, n, nbytes, ranks):
        return 0.0


@pytest.mark.parametrize("schedule, v", [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_the_replay_is_what_the_pipelines_executor_does_on_a_mesh(schedule, v, monkeypatch):
    pp, m = 4, 8
    places = pipeline.place(SMALL.n_layer, pp, v)
    shapes = cluster.local_shapes(Setup(SMALL, Layout(), 1), SMALL.n_layer)

    def program(rank):
        chunks = []
        for number in range(rank.rank, pp * v, pp):
            names = [f"h.{i}." for i in places[number]]
            names += ["w"] * (number == 0) + ["wte", "ln_f"] * (number == pp * v - 1)
            own = {k: s for k, s in shapes.items() if k.startswith(tuple(names))}
            own = {k: rank.device.empty(s, "fp32") for k, s in own.items()}
            chunks.append({"blocks": [], **unflatten(own)})
        ids = rank.device.empty((1, SMALL.n_ctx), "int64")

        def forward(i, chunk, x):
            x = ids if x is None else x
            return layers.gpt2(x, chunks[chunk], ids, 1, SMALL.n_head)

        plan = pipeline.SCHEDULES[schedule](rank.rank, pp, m, v)
        pipeline.play(plan, rank.pp, v, forward)
        return rank.device.streams["compute"]

    played = run(program, Mesh(pp=pp, cost=MatmulsOnly(), overlap={"pp"}))
    monkeypatch.setattr(cluster, "Cost", lambda *args: MatmulsOnly())
    cluster._pieces.cache_clear()
    setup = Setup(SMALL, Layout(pp=pp, schedule=schedule, virtual_stages=v), m)
    made = pieces(setup)
    chunks = [Chunk([made[k] for k in kinds]) for kinds in cluster.kinds(setup)]
    cluster._pieces.cache_clear()
    assert [s.clock for s in replay(setup.layout, m, chunks)] == played


# What one rank does


def run_small(device, tp, arrays, ids):
    split = split_layers(Layout(tp=tp.size, sequence_parallel=True), tp, SMALL.n_vocab)
    loss, back = layers.gpt2(ids, unflatten(arrays), ids, 64, SMALL.n_head // tp.size, split)
    back()
    return (dict(device.streams), device.matmul_flops, device.other_flops, device.peak,
            dict(device.sent), {name: row for name, row in device.kernels.items()})  # fmt: skip


@pytest.mark.parametrize("fused", [True, frozenset()])
def test_a_run_with_numbers_takes_the_time_that_one_without_takes(fused):
    arrays = flatten(init_params(SMALL, np.float32, 0))
    tokens, cost = np.arange(64).reshape(2, 32) % 96, Cost(GPUS["a100"])

    def with_numbers(rank):
        rank.device.fused = fused
        own = {k: rank.device.put(tensor.split(k, a, 4)[rank.tp.rank]) for k, a in arrays.items()}
        return run_small(rank.device, rank.tp, own, rank.device.put(tokens))

    alone = Device(0, cost)
    alone.fused = fused
    tp = StandIn("tp", range(4), 0, alone)
    shapes = cluster.local_shapes(Setup(SMALL, Layout(tp=4), 1), SMALL.n_layer)
    own = {k: alone.empty(shape, "fp32") for k, shape in shapes.items()}
    simulated = run_small(alone, tp, own, alone.empty((2, 32), "int64"))
    assert simulated[0]["compute"] > 0
    for real in run(with_numbers, Mesh(tp=4, cost=cost)):
        assert real == simulated


@pytest.mark.parametrize("options", [
    {}, {"flash": 2, "window": 512, "fused": False}, {"overlap": frozenset(["tp"])},
    {"parallel_block": True, "flash": 1},
])  # fmt: skip
@pytest.mark.parametrize("recompute, sp", [("none", True), ("selective", False), ("full", True)])
def test_a_block_timed_once_and_repeated_is_exact(options, recompute, sp):
    setup = Setup(GPT3, Layout(tp=8, sequence_parallel=sp, recompute=recompute), 1, **options)
    embedding, block, head, _ = pieces(setup)
    device, forward, backward = run_model(setup, 5)
    for i, piece in enumerate([embedding, *[block] * 5, head]):
        np.testing.assert_allclose(forward[i][1], piece.forward, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(backward[i][1], piece.backward, rtol=1e-9, atol=1e-12)
        assert forward[i][2] + backward[i][2] == piece.flops
        assert forward[i + 1][0] - forward[i][0] == piece.held


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("tp, sp", [(1, False), (8, False), (8, True)])
def test_flops_counted_by_running_are_the_closed_form(recompute, tp, sp):
    setup = Setup(GPT3, Layout(3, 4, tp, sp, recompute=recompute), 12)
    assert simulate(setup).flops == training_flops(GPT3, 12, recompute)


def test_flash_attention_counts_the_tiles_that_the_mask_leaves():
    layout = Layout(tp=8)
    for window in (None, 512):
        block = pieces(Setup(GPT3, layout, 1, flash=2, window=window))[1]
        square = pieces(Setup(GPT3, layout, 1))[1]
        s, tile = GPT3.n_ctx, 128
        keys = [i + tile - max(0, i - window + 1 if window else 0) for i in range(0, s, tile)]
        pairs = tile * sum(keys)  # forward 2 products, backward 5
        assert square.flops - block.flops == 2 * GPT3.n_embd // 8 * (6 * s * s - 7 * pairs)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("tp, sp", [(1, False), (8, False), (8, True)])
@pytest.mark.parametrize("flash, parallel", [(0, False), (2, False), (0, True), (2, True)])
def test_activation_bytes_by_running_are_the_papers(recompute, tp, sp, flash, parallel):
    """arXiv 2205.05198, Table 2, without dropout, and 2 bytes a token for each norm's 1/std."""
    for c, b in ((model("korthikanti-22b"), 4), (Config(4096, 32, 2, 2048, 51200), 1)):
        split = Layout(tp=tp, sequence_parallel=sp, recompute=recompute)
        held = pieces(Setup(c, split, b, b, flash=flash, parallel_block=parallel))[1].held
        paper = activation_bytes(c.n_ctx, b, c.n_embd, c.n_head, tp, sp, recompute, dropout=False,
                                 flash=flash > 0, parallel_block=parallel)  # fmt: skip
        norms = 0 if recompute == "full" else 1 if parallel else 2
        assert held - paper == norms * 2 * b * c.n_ctx // (tp if sp else 1)


class Ticking:
    """A cost of round figures: a matmul 8 s, any other kernel nothing, communication `seconds`."""

    def __init__(self, seconds):
        self.seconds = seconds

    def kernel(self, name, matmuls, flops, nbytes, dtype):
        return 8.0 if matmuls else 0.0

    def collective(self, name, n, nbytes, ranks):
        return self.seconds


@pytest.mark.parametrize("seconds, made, sent, gathered", [
    (4.0, 8, 9, 1),  # tiles of 1 s: sent while the next is made; the last one is waited for
    (16.0, 8, 18, 4),  # the first tile is made at 2 s, and communication is the bottleneck
])  # fmt: skip
def test_tiles_hide_communication_behind_a_matmul(seconds, made, sent, gathered):
    device = Device(0, Ticking(seconds))
    device.record = []
    tp = cluster.Tiled("tp", range(4), 0, device, overlap=True)
    x, w = device.empty((8, 4)), device.empty((4, 4))
    whole = tp.all_gather(x)
    assert whole.ready == gathered and device.streams["comm"] == seconds
    device.streams.clear(), device.record.clear()
    y = x @ w
    assert (y.ready, tp.reduce_scatter(y).ready, y.ready) == (made, sent, made)


# The whole step


def test_the_parts_add_up_to_the_step_and_flags_change_the_parts_they_should():
    base = Setup(GPT3, SPLIT._replace(tp=8, zero=1), 32, fused=False, flash=1)
    before = simulate(base)
    assert before.seconds == sum(before.parts.values()) and min(before.parts.values()) >= 0
    for changes, part in [
        ({"flash": 2}, "attention"), ({"window": 256}, "attention"),
        ({"fused": True}, "elementwise"),
        ({"parallel_block": True}, "tp"), ({"overlap": frozenset(["tp"])}, "tp"),
        ({"overlap": frozenset(["pp"])}, "pp"), ({"overlap": frozenset(["dp"])}, "dp"),
        ({"overlap": frozenset(["data"])}, "fixed"),
    ]:  # fmt: skip
        after = simulate(base._replace(**changes))
        assert after.parts[part] < before.parts[part], changes
        assert after.seconds < before.seconds, changes
        assert after.seconds == sum(after.parts.values())
    lamb = simulate(base._replace(optimizer="lamb"))
    assert lamb.parts["optimizer"] > before.parts["optimizer"]
    unfolded = simulate(base._replace(flash=0))
    assert unfolded.parts["attention"] > before.parts["attention"]
    assert unfolded.fullest["activations"] > before.fullest["activations"]


def test_stages_that_are_uneven_or_alone_work():
    for pp in (1, 3, 5):
        step = simulate(Setup(SMALL, Layout(2, pp, 2), 12))
        assert step.seconds == pytest.approx(sum(step.parts.values()), rel=1e-12)
        assert len(step.memory) == pp and step.parts["bubble"] >= -1e-15


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_memory_of_states_is_zeros_closed_form(stage):
    step = simulate(Setup(GPT3, Layout(dp=64, pp=1, tp=8, zero=stage), 64))
    states = sum(size for kind, size in step.fullest.items() if kind != "activations")
    whole = sum(np.prod(s) for s in cluster.local_shapes(step.setup, GPT3.n_layer).values())
    gathered = 2 * max(piece.n_params for piece in pieces(step.setup)) if stage == 3 else 0
    closed = state_bytes(int(whole), 64, stage, grad_bytes=4) + gathered
    assert states == pytest.approx(closed, rel=1e-6)
    assert int(whole) * 8 == pytest.approx(n_params(GPT3), rel=2e-3)


def test_a_pipelines_memory_is_its_chunks_in_flight():
    setup = Setup(GPT3, Layout(1, 4, 8, recompute="full"), 8)
    block = pieces(setup)[1]
    n = 24  # blocks in a stage; the second one is at its peak when 3 micro-batches are in flight
    stages = [kinds["activations"] for kinds in simulate(setup).memory]
    assert stages[1] == 3 * n * block.held + block.peaks[1]
    assert stages[2] == 2 * n * block.held + block.peaks[1]


def test_traffic_over_dp_costs_what_the_strategies_send():
    cost, ranks = Cost(GPUS["a100"]), range(0, 64, 16)
    setup = Setup(SMALL, Layout(4, 8, 2, zero=1), 4)
    shapes = {k: s for k, s in cluster.local_shapes(setup, 1).items() if k.startswith("h.")}
    for stage, reduce in ((0, data.all_reduce), (1, zero.reduce_scatter)):
        device = Device(0, cost)
        dp = StandIn("dp", ranks, 0, device)
        reduce({k: device.empty(s) for k, s in shapes.items()}, dp)()
        staged = setup._replace(layout=setup.layout._replace(zero=stage))
        assert device.seconds["comm"] == cluster.over_dp(staged, cost)[1][1]
    device = Device(0, cost)
    dp = StandIn("dp", ranks, 0, device)
    sizes = {k: zero.shard_size(int(np.prod(s)), 4) for k, s in shapes.items()}
    shards = {k: device.empty(size, "bf16") for k, size in sizes.items()}
    zero.all_gather(shards, shapes, dp)
    assert device.seconds["comm"] == cluster.over_dp(setup, cost)[0][1]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_exposed_traffic_over_dp_is_zeros_closed_form(stage):
    setup = Setup(SMALL, Layout(16, 1, 2, zero=stage), 16 * 5)
    gathers, reduces = cluster.over_dp(setup, Cost(setup.gpu))
    gather, reduce = [rows[0] + 8 * rows[1] + rows[3] for rows in (gathers, reduces)]
    closed = [reduce, gather + reduce, gather + 5 * reduce, 2 * 5 * gather + 5 * reduce][stage]
    assert simulate(setup).parts["dp"] == pytest.approx(closed)


def two_pieces():
    four = np.array([4.0, 0, 0, 0])
    pieces = [Piece(four, four, 0, 5, (2, 9), 1), Piece(four, four, 0, 7, (10, 4), 1)]
    return Chunk(pieces, gather=[3.0, 5.0], reduce=[3.0, 3.0])


@pytest.mark.parametrize("stage, end, waits", [
    (0, 19, 3),  # forward 0 to 8, backward to 16; sums from 12 to 15 and from 16 to 19
    (1, 23, 7),  # weights are there at 3 and 8: the second piece needs its own 4 s after the first
    (3, 24, 8),  # again for backward from 8 on: the last piece's till 13, the first one's till 16
])  # fmt: skip
def test_overlapped_traffic_waits_only_for_what_is_needed(stage, end, waits):
    spans = []
    layout = Layout(dp=2, zero=stage)
    (one,) = replay(layout, 1, [two_pieces()], overlap={"dp"}, spans=spans)
    assert (one.clock, one.dp) == (end, waits), spans


def test_a_chunks_peak_is_that_of_the_piece_where_most_is_held():
    assert two_pieces().peaks == {"F": 15, "B": 4} and two_pieces().held == 12


def test_an_output_is_sent_in_parts_and_gathered_unless_it_is_split_already():
    cost, gpu = Cost(GPUS["a100"]), GPUS["a100"]
    whole = cluster.send_time(Setup(SMALL, Layout(pp=2, tp=8), 1), cost)(0, 8e6)
    split = cluster.send_time(Setup(SMALL, Layout(1, 2, 8, True), 1), cost)(0, 1e6)
    assert split == 1e6 / 25e9 + gpu.nic_latency
    gathered = 7e6 / (300e9 * CONSTANTS.nvlink) + 7 * gpu.nvlink_latency
    assert whole == pytest.approx(split + gathered)


def test_both_ends_of_the_pipeline_add_up_the_tied_embeddings_gradient():
    spans, gpu = [], GPUS["a100"]
    simulate(Setup(GPT3, Layout(1, 2, 8, True), 4), spans=spans)
    done = max(span.end for span in spans if span.kind in ("backward", "reduce"))
    last = next(span.start for span in spans if span.kind == "stragglers")
    seconds = 4 * 51200 * 12288 / 8 / 25e9 + 2 * gpu.nic_latency
    assert last - done == pytest.approx(seconds)


def test_the_vocabulary_is_padded_until_it_divides():
    setup = Setup(model("gpt3-175b"), Layout(tp=8), 1)
    assert cluster.local_shapes(setup, 1)["wte.weight"] == (6283, 12288)  # 50,264 / 8


def test_zero_costs_time_as_it_sends_more_and_saves_memory():
    steps = [simulate(Setup(GPT3, Layout(16, 1, 8, True, zero=stage), 64)) for stage in range(4)]
    waits = [step.parts["dp"] for step in steps]
    assert waits[0] == pytest.approx(
        waits[1] + (1 - 2 / 4) * (waits[0] / 2), rel=0.2
    ) and waits[1] < waits[2] < waits[3]  # fmt: skip
    totals = [sum(step.fullest.values()) for step in steps]
    assert totals == sorted(totals, reverse=True)
    hidden = simulate(steps[3].setup._replace(overlap=frozenset(["dp"])))
    assert hidden.seconds < steps[3].seconds


def test_the_work_does_not_depend_on_how_many_replicas_there_are(monkeypatch):
    asked, kernel = [], Cost.kernel
    monkeypatch.setattr(Cost, "kernel", lambda self, *a: asked.append(a) or kernel(self, *a))
    counts, parts = [], []
    for dp in (2, 1500):
        cluster._pieces.cache_clear(), cluster.run_optimizer.cache_clear(), asked.clear()
        setup = Setup(GPT3, Layout(dp, 8, 8, True, 1, "interleaved", 6), 16 * dp, flash=2)
        parts.append(simulate(setup).parts)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0
    for name in ("matmul", "attention", "elementwise", "tp", "pp"):
        assert parts[0][name] == parts[1][name]


def test_a_slow_rank_holds_up_its_stage_and_all_replicas():
    setup = Setup(GPT3, SPLIT._replace(dp=4, tp=8), 64)
    even = simulate(setup)
    assert simulate(setup, {5: 1.0}).seconds == even.seconds
    slow = simulate(setup, {29: 1.2})  # the last stage, which has the head, is the busiest
    assert even.seconds < slow.seconds < 1.2 * even.seconds
    assert simulate(setup, {31: 1.2}).seconds == slow.seconds  # the same stage, another tp rank
    assert simulate(setup, {29: 1.2, 30: 1.1}).seconds == slow.seconds
    assert simulate(setup, {29: 1.2, 32 + 29: 1.2}).seconds == slow.seconds  # another replica
    assert simulate(setup, {29: 1.2, 8 + 5: 1.2}).seconds > slow.seconds
    assert slow.parts["matmul"] == pytest.approx(1.2 * even.parts["matmul"])
    assert slow.parts["tp"] == even.parts["tp"]
    with pytest.raises(ValueError, match="no rank 128 among 128"):
        simulate(setup, {128: 2.0})


# The papers


@pytest.fixture(scope="module")
def compared():
    return [papers.compare(run) for run in published_runs()]


def error(compared, start, split="predict", column="error"):
    rows = [r for r in compared if r["row"].startswith(start) and r["split"] == split]
    return papers.errors(rows)[column]


def test_published_runs_are_predicted_within_two_points_of_mfu(compared):
    assert error(compared, "ms_t2_MS") < 2.0
    others = [r for r in compared if r["split"] == "predict" and r["row"][:8] in
              ("ms_t2_MT", *{r["row"][:8] for r in compared if r["row"].startswith("sc21")})]
    assert papers.errors(others)["error"] < 2.0
    assert error(compared, "sc21") < 2.0 and error(compared, "ms_t3") < 2.0
    assert error(compared, "ms_t2_MS", column="constant HFU's") > 10  # the trivial predictor


def test_table_3_gains_what_was_published_step_by_step(compared):
    rows = [r for r in compared if r["row"].startswith("ms_t3")]
    published, simulated = [[r[k] for r in rows] for k in ("MFU published", "MFU simulated")]
    gain = simulated[-1] - simulated[0]
    assert abs(gain - (published[-1] - published[0])) < 3
    assert (np.diff(simulated) > 0).all() and (np.diff(published) > 0).all()


def test_megascale_on_12288_gpus_is_the_published_times_faster(compared):
    times = {r["row"]: r["simulated"] for r in compared}
    megatron, megascale = times["ms_t2_MT_6144_12288"], times["ms_t2_MS_6144_12288"]
    assert megatron / megascale == pytest.approx(8.57 / 6.34, abs=0.03)


def test_the_fit_sees_no_row_that_is_there_to_be_predicted():
    runs = published_runs()
    assert {run.split for run in runs} == {"calibrate", "predict"}
    found = papers.residuals(CONSTANTS, runs)
    rows = {run.id for run in runs if run.split == "calibrate"}
    assert {name for name in found if "forward" not in name and "backward" not in name} == rows
    spoilt = [r if r.split == "calibrate" else r._replace(seconds_per_step=1e9) for r in runs]
    assert papers.residuals(CONSTANTS, spoilt) == found
    assert "flash_2" not in papers.FITTED


@pytest.mark.slow
def test_a_step_of_the_fit_leaves_the_stored_constants_where_they_are():
    moved = papers.fit(start=PRIOR, rounds=1, begin=CONSTANTS)
    np.testing.assert_allclose(moved, CONSTANTS, rtol=0.01)


# Layouts, and the command line


def test_plan_finds_layouts_that_fit_and_megascales_is_among_the_best():
    setup = Setup(model("megascale-175b"), Layout(), 256, **cluster.MEGASCALE)
    steps, n = plan.plan(setup, 256, top=5)
    assert n > 1000 and len(steps) == 5
    assert [s.seconds for s in steps] == sorted(s.seconds for s in steps)
    for step in steps:
        assert step.fits and step.gpus == 256
    published = simulate(setup._replace(layout=Layout(4, 8, 8, True, 1, "interleaved", 6)))
    assert published.seconds < 1.13 * steps[0].seconds  # it prints no micro-batch: with 1


@pytest.mark.parametrize("row, rank", [("sc21_t1_1.7B", 1), ("sc21_t1_1008.0B", 3)])
def test_sc21s_layouts_are_among_the_best_of_their_technique(row, rank):
    setup = papers.setup_of(next(r for r in published_runs() if r.id == row))
    fixed = ("recompute", "sequence_parallel", "zero")
    same = [
        other for other in plan.layouts(setup, np.prod(setup.layout[:3]))
        if all(getattr(other.layout, k) == getattr(setup.layout, k) for k in fixed)
    ]  # fmt: skip
    assert setup in same and len(same) >= 30
    assert sum(plan.estimate(other) < plan.estimate(setup) for other in same) < rank


@pytest.mark.parametrize("overlap", [(), ("pp",), ("dp",), ("tp", "pp", "dp", "data")])
@pytest.mark.parametrize("shape, gpus", [("gpt2", 8), ("gpt2-xl", 16)])
def test_plan_finds_what_simulating_every_layout_finds(shape, gpus, overlap):
    config = model(shape)._replace(n_layer=4, n_ctx=256)
    setup = Setup(config, Layout(), 16, overlap=frozenset(overlap))
    steps = [simulate(one) for one in plan.layouts(setup, gpus)]
    fastest = sorted(step.seconds for step in steps if step.fits)
    for top in (1, 3, 10):
        found, n = plan.plan(setup, gpus, top)
        assert [step.seconds for step in found] == fastest[:top] and n == len(steps)


def test_an_estimate_is_hardly_ever_above_the_simulation_also_with_overlap():
    setup = Setup(model("megascale-175b"), Layout(), 256, **cluster.MEGASCALE)
    found = list(plan.layouts(setup, 256))[::40]
    ratios = [simulate(one).seconds / plan.estimate(one) for one in found]
    assert len(ratios) > 20 and min(ratios) > 1 / plan.WITHIN


def test_plan_leaves_out_what_turns_out_not_to_fit(monkeypatch):
    fits, not_ = [
        Setup(GPT3, layout, 64)
        for layout in (Layout(1, 8, 8, recompute="full"), Layout(8, 1, 8, recompute="full"))
    ]
    assert simulate(fits).fits and not simulate(not_).fits
    monkeypatch.setattr(plan, "layouts", lambda setup, gpus: [not_, fits])
    steps, n = plan.plan(fits, 64)
    assert [step.setup for step in steps] == [fits] and n == 2


def test_plan_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="no layout of this model.* fits in 8 GPUs of 80 GB"):
        plan.plan(Setup(GPT3, Layout(), 8), 8)


def command(name, text, capsys):
    parser = argparse.ArgumentParser()
    room = {"simulate": cluster, "plan": plan, "mfu": flops}.get(name, papers)
    getattr(room, f"add_{name}")(parser)
    getattr(room, f"main_{name}")(parser.parse_args(text.split()))
    return capsys.readouterr().out


BASE = "--model gpt3-175b --gpus 12288 --tp 8 --pp 8 --virtual-stages 6 --global-batch 6144"


def test_simulate_prints_the_step(capsys):
    text = command("simulate", f"{BASE} --megascale --vocab 64000", capsys)
    for word in ("s per step", "tokens/s", "MFU", "HFU", "days", "bubble", "stragglers", "fits"):
        assert word in text


@pytest.mark.parametrize("options, message", [
    ("--model gpt3-175b --gpus 100 --tp 8 --pp 8 --global-batch 64", "say 64 or 128"),
    ("--model gpt3-175b --gpus 4 --tp 8 --global-batch 64", "say 8"),
    ("--model gpt3-175b --gpus 64 --tp 8 --global-batch 60", "does not divide by dp = 8"),
    ("--model gpt3-175b --gpus 64 --tp 8 --global-batch 64 --micro-batch 3", "micro_batch = 3"),
    ("--model gpt5 --gpus 8 --global-batch 8", "unknown model 'gpt5': choose one of"),
    ("--model gpt2 --gpu a1000 --gpus 8 --global-batch 8", "unknown GPU 'a1000': choose one of"),
    ("--gpus 8 --global-batch 8", "--model, or --n-embd, --n-head, --n-layer"),
    ("--model gpt2 --gpus 8 --tp 8 --global-batch 8", "12"),
    ("--model gpt2 --gpus 64 --pp 64 --global-batch 64", "layers are too few"),
    ("--model gpt2 --gpus 4 --pp 4 --virtual-stages 3 --global-batch 6", "do not divide by pp"),
    ("--model gpt2 --gpus 4 --virtual-stages 3 --global-batch 8", "pp is 1"),
    ("--model gpt2 --gpus 4 --global-batch 8 --slow 4=2", "no rank 4 among 4"),
    ("--model gpt2 --gpus 4 --global-batch 8 --window 64", "--window needs --flash"),
    ("--model gpt2 --gpus 4 --global-batch 80004", "20,001 micro-batches .* more than 20,000"),
    ("--model gpt2 --n-embd 100 --gpus 4 --global-batch 8", "does not divide by n_head"),
])  # fmt: skip
def test_bad_input_gets_one_line_that_says_what_would_be_valid(options, message, capsys):
    with pytest.raises(ValueError, match=message) as error:
        command("simulate", options, capsys)
    assert "\n" not in str(error.value)


def test_of_two_factors_of_a_slow_rank_the_larger_counts(capsys):
    options = "--model gpt2 --gpus 4 --pp 4 --global-batch 8 --json"
    once = command("simulate", f"{options} --slow 1=1.5", capsys)
    for twice in ("--slow 1=1.5 --slow 1=1.1", "--slow 1=1.1 --slow 1=1.5"):
        assert command("simulate", f"{options} {twice}", capsys) == once
    assert command("simulate", options, capsys) != once


def test_the_step_says_why_its_hfu_is_below_its_mfu_and_no_time_is_negative(capsys):
    said, options = "not in the FLOPs done", "--model gpt2 --gpus 1 --global-batch 8"
    for more, skips in (("", False), ("--flash", True), ("--flash --window 64", True)):
        text = command("simulate", f"{options} {more}", capsys)
        assert (said in text) == skips and "-0.0" not in text
    step = simulate(Setup(SMALL, Layout(), 1))
    tiny = step._replace(parts=step.parts | {"tp": -1e-17})
    assert "-0.0" not in cluster.as_text(tiny) and cluster.as_dict(tiny)["seconds"]["tp"] == 0.0


@pytest.mark.parametrize("missing", ["ms_t2_MS_6144_12288", "ms_t2_MT_6144_12288", "ms_t3_1",
                                     "ms_t3_4", "ms_t3_9"])
def test_a_row_that_the_report_needs_is_missed_by_name(missing):
    runs = published_runs()
    assert len(papers.megascale_runs(runs)) == 25
    with pytest.raises(ValueError, match=f"^training_runs.csv, column id: the row {missing} is"):
        papers.megascale_runs([run for run in runs if run.id != missing])


@pytest.mark.parametrize("options", ["--slow 3", "--slow 3=x", "--slow 3=-1", "--slow 3=nan",
                                     "--overlap tp,xp", "--tp 0", "--window 0", "--zero 4"])
def test_bad_options_are_usage_errors(options, capsys):
    with pytest.raises(SystemExit):
        command("simulate", f"{BASE} {options}", capsys)


def test_12288_and_100000_gpus_take_two_seconds_and_300_megabytes():
    code = (
        "import argparse, sys, time, json\n"
        "from gpt_numpy import cluster\n"
        "parser = argparse.ArgumentParser(); cluster.add_simulate(parser)\n"
        "cluster.main_simulate(parser.parse_args(sys.argv[1:]))\n"
        "try:\n"
        "    import resource\n"
        "    unit = 1 if sys.platform == 'darwin' else 1024\n"
        "    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit\n"
        "except ImportError:\n"
        "    peak = 0\n"
        "print(json.dumps([time.process_time(), peak]))\n"
    )
    for options in (BASE, BASE.replace("12288", "102400").replace("6144", "51200")):
        call = [sys.executable, "-c", code, *options.split(), "--megascale", "--json"]
        out = subprocess.run(call, capture_output=True, text=True, encoding="utf-8",
                             check=True).stdout
        cpu, peak = json.loads(out.splitlines()[-1])
        assert cpu < 2 and peak < 300e6


def test_a_sliding_windows_gain_is_shown_by_all_pairs_and_by_those_attended(
        capsys, compared, monkeypatch):  # fmt: skip
    rows = {row["row"]: row for row in compared}
    monkeypatch.setattr(papers, "compare", lambda run: rows[run.id])
    steps = json.loads(command("megascale", "--json", capsys))["table 3"]
    before, after = steps[1:3]
    assert (before["step"], after["step"]) == ("parallel block", "sliding window")
    c, name = model("megascale-175b"), "MFU of pairs attended"
    for step, window in ((before, None), (after, 512)):
        share = training_flops(c, 1, causal=True, window=window) / training_flops(c, 1)
        assert step[name] == pytest.approx(share * step["simulated"])
    assert 0 < after[name] - before[name] < after["gain simulated"]


def test_mfu_names_every_convention_and_a_sparse_peak(capsys):
    options = "--model gpt3-175b --gpus 12288 --gpu a100 --batch 6144 --seconds 6.34 --vocab 64000"
    text = command("mfu", options, capsys)
    assert all(name in text for name in flops.CONVENTIONS) and " 55.7" in text.split("matmul")[0]
    assert "sparse peak of A100-80G" in command("mfu", f"{options} --peak 624", capsys)
    with pytest.raises(ValueError, match=r"in TFLOP/s, .* say --peak 312$"):
        command("mfu", f"{options} --peak 312e12", capsys)
    rows = json.loads(command("mfu", f"{options} --json", capsys))["rows"]
    assert [row["convention"] for row in rows] == [*flops.CONVENTIONS]
    with pytest.raises(ValueError, match="seconds is 0.0: it must be a number above 0"):
        command("mfu", options.replace("6.34", "0"), capsys)


@pytest.mark.parametrize("name", ["megascale", "published"])
def test_reports_name_every_row_and_the_trivial_predictor(name, capsys, compared, monkeypatch):
    rows = {row["row"]: row for row in compared}
    monkeypatch.setattr(papers, "compare", lambda run: rows[run.id])
    text = command(name, "", capsys)
    for row in rows:
        assert row in text or (name == "megascale" and not row.startswith("ms_t2"))
    assert "constant HFU" in text
    if name == "megascale":
        assert "1.35 published" in text and "sliding window" in text
