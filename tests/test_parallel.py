"""Every way of splitting the model gives one device's numbers; a fault that does not is seen."""

import itertools
from collections import defaultdict
from functools import lru_cache

import numpy as np
import pytest

from gpt_numpy import layers, train
from gpt_numpy.checkpoint import flatten
from gpt_numpy.flops import Config, in_flight
from gpt_numpy.gpt2 import gpt2
from gpt_numpy.layers import IDENTITY, Pair
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.parallel import data, pipeline, sequence, tensor, zero
from gpt_numpy.parallel.model import Layout, Model, check, forward
from tests.tiny import tiny_params

# No two sizes are equal, and 37 tokens, 5 layers and the rows below divide by few things.
SIZES = dict(n_vocab=37, n_embd=12, n_head=4, n_layer=5, n_ctx=6, batch=8)
MICRO_BATCH, STEPS, LR = 2, 3, 1e-2


def settings(optimizer="adamw", parallel_block=False, micro_batch=MICRO_BATCH, **sizes):
    return train.Settings(
        **SIZES | sizes, dtype="float64", optimizer=optimizer, parallel_block=parallel_block,
        micro_batch=micro_batch, max_norm=0.05, weight_decay=0.3,
    )  # fmt: skip


@lru_cache
def start(optimizer, parallel_block=False):
    """Weights without zeros or ones, and three batches whose rows have few or many targets."""
    s = settings(optimizer, parallel_block)
    params = train.init_params(s.config, np.float64, seed=1, parallel_block=parallel_block)
    rng = np.random.default_rng(2)
    for a in flatten(params).values():
        a += 0.1 * rng.standard_normal(a.shape)
    shape = STEPS, SIZES["batch"], SIZES["n_ctx"]
    tokens, targets = rng.integers(0, SIZES["n_vocab"], (2, *shape))
    masked = rng.random(shape) < np.linspace(0, 1, SIZES["batch"])[:, None]  # the last row wholly
    return s, params, list(zip(tokens, np.where(masked, -1, targets)))


def copy(tree):
    if isinstance(tree, dict):
        return {key: copy(value) for key, value in tree.items()}
    return [copy(t) for t in tree] if isinstance(tree, list) else tree.copy()


def play(trained, batches):
    """Losses and norms by step, and the state after the first and after the last one."""
    figures, states = [], []
    for tokens, targets in batches:
        figures.append(trained.step(tokens, targets, LR))
        if len(figures) in (1, len(batches)):
            states.append({name: np.array(a) for name, a in trained.state().items()})
    return np.array(figures), states


@lru_cache
def one_device(optimizer, parallel_block=False):
    s, params, batches = start(optimizer, parallel_block)
    return play(train.OneDevice(copy(params), s), batches)


def difference(layout, optimizer="adamw", parallel_block=False):
    """The largest difference to one device: losses, norms, gradients (in Adam's m), weights."""
    s, params, batches = start(optimizer, parallel_block)
    expected, expected_states = one_device(optimizer, parallel_block)

    def program(rank):
        return play(Model(rank, params, s, layout), batches)

    results = run(program, Mesh(layout.dp, layout.pp, layout.tp))
    worst = max(abs(figures - expected).max() for figures, _ in results)
    for state, right in zip(results[0][1], expected_states):
        assert state.keys() == right.keys()
        worst = max(worst, *(abs(state[name] - right[name]).max() for name in right))
    return worst


def layouts():
    """All of dp, pp, tp up to 8 ranks; each with some of the other choices, all in turn."""
    schedules = {1: [("1f1b", 1)], 2: [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)]}
    schedules[4] = schedules[2][:2]
    recompute = itertools.cycle(["none", "selective", "full"])
    optimizers = itertools.cycle(["adamw", "adamw", "lamb", "adamw"])
    parallel = itertools.cycle([False, False, True])
    for dp, pp, tp in itertools.product([1, 2, 4], repeat=3):
        if dp * pp * tp > 8:
            continue
        for stage in range(4):
            for sequence_parallel in [False, True] if tp > 1 else [False]:
                for schedule, virtual_stages in schedules[pp]:
                    if schedule == "interleaved" and SIZES["batch"] // dp // MICRO_BATCH % pp:
                        continue
                    layout = Layout(dp, pp, tp, sequence_parallel, stage, schedule,
                                    virtual_stages, next(recompute))  # fmt: skip
                    yield layout, next(optimizers), next(parallel)


@pytest.mark.slow
def test_every_layout_trains_as_one_device_does(record_property):
    cases = list(layouts())
    assert len(cases) >= 150
    worst = {case: difference(*case) for case in cases}
    case = max(worst, key=worst.get)
    record_property("worst", worst[case])
    print(f"{len(cases)} layouts; the worst differs by {worst[case]:.1e}: {case}")
    assert worst[case] < 1e-10, case


FAULTS = {
    "f forgets its all-reduce": (tensor, "enter", lambda tp: IDENTITY, {}),
    "g forgets its all-reduce": (tensor, "leave", lambda tp: IDENTITY, {}),
    "f sums forward too": (tensor, "enter", lambda tp: Pair(tp.all_reduce, tp.all_reduce), {}),
    "g averages": (
        tensor, "leave",
        lambda tp: Pair(lambda x: tp.all_reduce(x) / tp.size, lambda x: x), {},
    ),
    "sequence: enter sums nothing": (
        sequence, "enter",
        lambda tp: Pair(tp.all_gather, lambda x: np.split(x, tp.size)[tp.rank]),
        {"sequence_parallel": True},
    ),
    "sequence: norms' gradients are not reduced": (
        sequence, "reduce_partial", lambda grads, tp: grads, {"sequence_parallel": True},
    ),
    "sequence: norms' gradients are averaged": (
        sequence, "reduce_partial",
        lambda grads, tp, right=sequence.reduce_partial: {
            n: g / tp.size if tensor.split_axis(n) is None else g
            for n, g in right(grads, tp).items()
        },
        {"sequence_parallel": True},
    ),
    "data: mean instead of sum": (
        data, "all_reduce",
        lambda grads, dp, right=data.all_reduce: lambda: {
            n: g / dp.size for n, g in right(grads, dp)().items()
        }, {},
    ),
    "data: not reduced": (data, "all_reduce", lambda grads, dp: lambda: grads, {}),
    "zero: mean instead of sum": (
        zero, "reduce_scatter",
        lambda grads, dp, right=zero.reduce_scatter: lambda: {
            n: g / dp.size for n, g in right(grads, dp)().items()
        }, {"zero": 2},
    ),
    "tied embedding is not summed": (Model, "sum_tied", lambda self, grads: None, {}),
    "norm counts what tp repeats": (tensor, "split_axis", lambda name: 0, {"only": "total"}),
    "q, k, v are cut as one": (
        tensor, "split",
        lambda name, x, tp, right=tensor.split: np.split(x, tp, -1) if "c_attn" in name
        else right(name, x, tp), {},
    ),
    "padding is in the loss": (
        tensor, "cross_entropy",
        lambda *args, right=tensor.cross_entropy, **how: right(*args, **how | {"n_vocab": 99}), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault, monkeypatch):
    where, name, wrong, options = FAULTS[fault]
    options = dict(options)
    if options.pop("only", None):  # in the norm alone, not in how arrays are cut
        right, total = tensor.split_axis, Model.total

        def norm(self, squares):
            tensor.split_axis = wrong
            try:
                return total(self, squares)
            finally:
                tensor.split_axis = right

        monkeypatch.setattr(Model, "total", norm)
    else:
        monkeypatch.setattr(where, name, wrong)
    assert difference(Layout(dp=2, pp=2, tp=2, **options)) > 1e-6


def test_a_bias_added_before_the_sum_is_seen(monkeypatch):
    def linear_sum(xs, *params, leave=IDENTITY, right=layers.linear_sum):
        y, back = right(xs, *params, leave=leave)
        biases = sum(p["b"] for p in params)
        return y + leave.forward(y * 0 + biases) - biases, back

    monkeypatch.setattr(layers, "linear_sum", linear_sum)
    assert difference(Layout(tp=2)) > 1e-6


# Bytes, exactly

D, V, N_LAYER = SIZES["n_embd"], SIZES["n_vocab"], SIZES["n_layer"]
TOKENS = SIZES["batch"] * SIZES["n_ctx"]  # of the whole batch
FLOAT = 8  # bytes
N_CTX_PADDED = 8  # position rows, padded to a multiple of dp = 4 elements in all


def measured(layout, micro_batch=0, steps=1):
    """Every rank's report of a step."""
    s, params, batches = start("adamw")
    s = settings(micro_batch=micro_batch)

    def program(rank):
        m = Model(rank, params, s, layout)
        for tokens, targets in batches[:steps]:
            m.step(tokens, targets, LR)
        return m.report()

    return run(program, Mesh(layout.dp, layout.pp, layout.tp))


def sent(layout, group, **how):
    return sum(r["sent_bytes"].get(group, 0) for r in measured(layout, **how))


def weights(dp=1, padded=False):
    """Elements of the model; with ZeRO every array is padded to a multiple of dp."""
    shapes = {name: a.shape for name, a in flatten(start("adamw")[1]).items()}
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    return {name: -(-n // dp) * dp for name, n in sizes.items()} if padded else sizes


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_data_parallel_sends_each_gradient_through_one_all_reduce(dp):
    """2 Psi (n-1)/n per rank (ZeRO, arXiv 1910.02054, section 7.1), whatever the micro-batches."""
    scalars = 2  # the token count, and the loss: 8 bytes each, all-reduced
    expected = 2 * (dp - 1) * FLOAT * (sum(weights().values()) + scalars)
    assert sent(Layout(dp=dp), "dp") == sent(Layout(dp=dp), "dp", micro_batch=1) == expected


@pytest.mark.parametrize("dp", [2, 4, 8])
@pytest.mark.parametrize("stage", [1, 2])
def test_zero_1_and_2_send_as_much_as_an_all_reduce(dp, stage):
    """Psi for the reduce-scatter, Psi for the all-gather (arXiv 1910.02054, section 7.2.1)."""
    psi = sum(weights(dp, padded=True).values())
    scalars = 2 * 3  # token count, loss and square sum, all-reduced
    assert sent(Layout(dp=dp, zero=stage), "dp") == (dp - 1) * FLOAT * (2 * psi + scalars)


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_zero_3_gathers_the_weights_of_every_layer_twice(dp):
    """3 Psi (arXiv 1910.02054, section 7.2.2); the tied embedding is gathered for both layers."""
    padded = weights(dp, padded=True)
    psi, tied = sum(padded.values()), padded["wte.weight"]
    scalars = 2 * 3
    expected = (dp - 1) * FLOAT * (3 * psi + 2 * tied + scalars)
    assert sent(Layout(dp=dp, zero=3), "dp") == expected


@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_parallel_reduces_four_times_a_block(tp):
    """f and g, forward and backward, of [n, d] (arXiv 1909.08053, section 3, figure 4).

    Embedding and head have one all-reduce each; the loss three of [n] (section 3).
    """
    reduced = (4 * N_LAYER + 2) * TOKENS * D + 3 * TOKENS
    scalars = 1  # the square sum
    assert sent(Layout(tp=tp), "tp") == 2 * (tp - 1) * FLOAT * (reduced + scalars)


@pytest.mark.parametrize("tp", [2, 4])
def test_full_recomputation_runs_the_forward_all_reduces_again(tp):
    extra = sent(Layout(tp=tp, recompute="full"), "tp") - sent(Layout(tp=tp), "tp")
    assert extra == 2 * (tp - 1) * FLOAT * 2 * N_LAYER * TOKENS * D
    assert sent(Layout(tp=tp, recompute="selective"), "tp") == sent(Layout(tp=tp), "tp")


@pytest.mark.parametrize("tp", [2, 4])
def test_sequence_parallel_sends_what_tensor_parallel_does_and_gathers_inputs_again(tp):
    """All-gather and reduce-scatter are an all-reduce (arXiv 2205.05198, section 4.2.2).

    Since only 1/tp of a linear layer's input is held, backward gathers it again: two for each
    block, one for the head. The gradients of norms, biases and positions are all-reduced.
    """
    whole = sum(n for name, n in weights().items() if tensor.split_axis(name) is None)
    extra = (2 * N_LAYER + 1) * TOKENS * D * (tp - 1) * FLOAT + 2 * (tp - 1) * FLOAT * whole
    plain, split = sent(Layout(tp=tp), "tp"), sent(Layout(tp=tp, sequence_parallel=True), "tp")
    assert split - plain == extra


@pytest.mark.parametrize("pp, schedule, virtual_stages", [
    (2, "1f1b", 1), (4, "gpipe", 1), (4, "1f1b", 1), (2, "interleaved", 2),
])  # fmt: skip
def test_a_pipeline_sends_activations_and_their_gradients_across_each_cut(
    pp, schedule, virtual_stages
):
    cuts = pp * virtual_stages - 1
    layout = Layout(pp=pp, schedule=schedule, virtual_stages=virtual_stages)
    tied = 2 * V * D  # first to last stage, and back
    scalars = 2 * (pp - 1) * 2  # loss and square sum, all-reduced
    expected = FLOAT * (2 * cuts * TOKENS * D + tied + scalars)
    assert sent(layout, "pp", micro_batch=1) == sent(layout, "pp", micro_batch=2) == expected


# What it is for: bytes held


def held(layout, kind):
    """The most of one kind that a rank holds after a step."""
    s, params, batches = start("adamw")

    def program(rank):
        m = Model(rank, params, settings(micro_batch=1), layout)
        m.step(*batches[0], LR)
        return rank.device.held_by_kind[kind]

    return max(run(program, Mesh(layout.dp, layout.pp, layout.tp)))


def test_zero_holds_a_share_of_the_optimizer_and_stage_3_of_the_weights():
    psi, dp = sum(weights().values()) * FLOAT, 4
    share = sum(weights(dp, padded=True).values()) * FLOAT // dp
    optimizer = [held(Layout(dp=dp, zero=z), "optimizer") for z in range(4)]
    assert optimizer == [2 * psi] + 3 * [2 * share]
    assert [held(Layout(dp=dp, zero=z), "weights") for z in range(4)] == 3 * [psi] + [share]


def test_tensor_parallel_holds_a_share_of_what_is_split():
    whole = sum(n for name, n in weights().items() if tensor.split_axis(name) is None)
    split = sum(weights().values()) - whole - V * D + 40 * D  # the vocabulary is padded to 40
    assert held(Layout(tp=4), "weights") == (whole + split // 4) * FLOAT


@pytest.mark.parametrize("schedule, pp, m, v", [
    ("1f1b", 4, 8, 1), ("1f1b", 4, 2, 1), ("gpipe", 4, 8, 1), ("interleaved", 2, 4, 2),
])  # fmt: skip
def test_in_flight_activations_by_stage(schedule, pp, m, v):
    reports = measured(Layout(pp=pp, schedule=schedule, virtual_stages=v), micro_batch=8 // m)
    assert [r["in_flight"] for r in reports] == in_flight(schedule, pp, m, v)


def test_in_flight_figures_of_the_papers():
    def peaks(schedule, m, v=1):
        peaks = []
        for stage in range(4):
            flying = [1 if a.kind == "F" else -1
                      for a in pipeline.SCHEDULES[schedule](stage, 4, m, v)]  # fmt: skip
            peaks.append(max(itertools.accumulate(flying)))
        return peaks

    assert peaks("1f1b", 8) == [4, 3, 2, 1]
    assert peaks("1f1b", 2) == [2, 2, 2, 1]
    assert peaks("gpipe", 8) == [8, 8, 8, 8]
    assert peaks("interleaved", 8, v=2) == [11, 9, 7, 5]


@pytest.mark.parametrize("schedule", pipeline.SCHEDULES)
@pytest.mark.parametrize(
    "pp, m, v", [*itertools.product([1, 2, 3, 4], [1, 2, 3, 4, 6], [1, 2, 3])]
)
def test_a_schedule_runs_every_chunk_of_every_micro_batch_once_each_way(schedule, pp, m, v):
    if schedule != "interleaved" and v > 1 or schedule == "interleaved" and m % pp:
        with pytest.raises(ValueError, match="interleaved"):
            pipeline.SCHEDULES[schedule](0, pp, m, v)
        return
    every = {(kind, i, c) for kind in "FB" for i in range(m) for c in range(v)}
    for stage in range(pp):
        actions = pipeline.SCHEDULES[schedule](stage, pp, m, v)
        assert len(actions) == len(every) and set(actions) == every
        for i, c in itertools.product(range(m), range(v)):
            assert actions.index(("F", i, c)) < actions.index(("B", i, c))


# The fixture TINY: 2 heads, 2 layers


def tiny_step(layout, tokens, targets):
    """Loss and whole gradients by name of a step of TINY, before clipping, as in Adam's m."""
    s = train.Settings(n_vocab=5, n_embd=4, n_head=2, n_layer=2, n_ctx=6, batch=len(tokens),
                       dtype="float64", max_norm=1e9)  # fmt: skip
    seen = {}

    def program(rank):
        m = Model(rank, tiny_params(), s, layout)
        loss, norm = m.step(np.array(tokens), np.array(targets), lr=1e-3)
        seen[rank.rank] = m.weights["wte.weight"].numpy() if "wte.weight" in m.weights else None
        return loss, norm, m.state()

    loss, norm, state = run(program, Mesh(layout.dp, layout.pp, layout.tp))[0]
    grads = {name[2:]: m / (1 - 0.9) for name, m in state.items() if name.startswith("m.")}
    return loss, norm, grads, seen


@pytest.mark.parametrize("pp", [1, 2])
def test_the_tied_embedding_gets_the_gradients_of_both_ends_once(pp):
    loss, _, grads, seen = tiny_step(Layout(pp=pp), [[1, 3, 2]], [[3, 2, 0]])
    assert loss == pytest.approx(2.185589775, abs=1e-9)
    assert np.linalg.norm(grads["wte.weight"]) == pytest.approx(1.443584, abs=1e-6)
    row = [0.261802, 0.049817, -0.124766, -0.118129]
    np.testing.assert_allclose(grads["wte.weight"][3], row, atol=1e-6)
    copies = [w for w in seen.values() if w is not None]
    assert len(copies) == pp and all((w == copies[0]).all() for w in copies)


def test_sequence_parallel_gains_and_biases_get_the_gradients_of_all_tokens():
    tokens, targets = [[1, 3, 2, 0]], [[3, 2, 0, 4]]
    _, _, expected, _ = tiny_step(Layout(), tokens, targets)
    _, _, grads, _ = tiny_step(Layout(tp=2, sequence_parallel=True), tokens, targets)
    for name in expected:
        np.testing.assert_allclose(grads[name], expected[name], rtol=0, atol=1e-10, err_msg=name)


def test_a_gain_s_gradient_is_the_sum_over_the_ranks_tokens():
    def program(rank):
        local = [np.array([1.0, 2.0]), np.array([3.0, 4.0])][rank.rank]
        grads = {"ln_f.weight": rank.device.put(local.sum(keepdims=True))}
        return float(sequence.reduce_partial(grads, rank.tp)["ln_f.weight"].numpy()[0])

    assert run(program, Mesh(tp=2)) == [10.0, 10.0]


# Cutting and joining


def test_qkv_columns_are_cut_by_heads():
    columns = np.arange(12)
    parts = tensor.split("h.0.attn.c_attn.bias", columns, 2)
    assert [part.tolist() for part in parts] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    parts = tensor.split("h.0.attn.c_attn.weight", np.tile(columns, (4, 1)), 2)
    assert parts[1][3].tolist() == [2, 3, 6, 7, 10, 11]


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_cutting_and_joining_is_exact(tp):
    for name, a in flatten(start("adamw")[1]).items():
        parts = tensor.split(name, a, tp)
        assert len({part.shape for part in parts}) == 1
        np.testing.assert_array_equal(tensor.join(name, parts, SIZES["n_vocab"]), a)


@pytest.mark.parametrize("n_head, tp, sizes", [(25, 4, "1, 5, 25"), (12, 8, "1, 2, 3, 4, 6, 12")])
def test_heads_that_do_not_divide_are_refused_with_the_sizes_that_do(n_head, tp, sizes):
    config = Config(n_embd=n_head * 64, n_head=n_head, n_layer=4, n_ctx=8, n_vocab=50)
    with pytest.raises(ValueError, match=f"tp can be {sizes}$"):
        check(Layout(tp=tp), config, batch=8)


@pytest.mark.parametrize("layout, sizes, message", [
    (Layout(dp=3), {}, "batch of 8 sequences does not divide by dp = 3"),
    (Layout(pp=6), {}, "5 layers are too few for 6 chunks"),
    (Layout(pp=2, schedule="interleaved", virtual_stages=2), {"micro_batch": 3},
     "3 micro-batches"),
    (Layout(pp=1, virtual_stages=2, schedule="interleaved"), {}, "needs a pipeline"),
    (Layout(pp=2, virtual_stages=2), {}, "use interleaved"),
    (Layout(tp=4, sequence_parallel=True), {"micro_batch": 1}, "1 x 6 tokens do(es)? not"),
])  # fmt: skip
def test_a_layout_that_cannot_work_is_refused_at_once(layout, sizes, message):
    s = settings(**{"micro_batch": 1} | sizes)
    with pytest.raises(ValueError, match=message) as error:
        check(layout, s.config, s.batch, s.micro_batch)
    assert "\n" not in str(error.value)


def test_zero_cuts_with_padding():
    assert (zero.shard_size(10, 4), zero.padding(10, 4)) == (3, [0, 0, 0, 2])
    assert zero.shard_size(266_240, 768, alignment=1536) == 348
    assert zero.padding(266_240, 768, alignment=1536)[-4:] == [0, 328, 348, 348]
    assert sum(zero.padding(266_240, 768, alignment=1536)) == 1024
    assert (zero.shard_size(5, 4, alignment=8), zero.padding(5, 4, 8)) == (2, [0, 0, 1, 2])
    table = zero.rows(np.arange(1.0, 11.0).reshape(2, 5), 4)
    assert table.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 0, 0]]


def test_layers_that_do_not_divide_go_to_the_first_stages():
    assert pipeline.place(5, 2) == [[0, 1, 2], [3, 4]]
    assert pipeline.place(5, 2, 2) == [[0, 1], [2], [3], [4]]


# Checkpoints


@pytest.mark.parametrize("before, after", [
    (Layout(dp=4, zero=1), Layout(tp=2)),
    (Layout(tp=4), Layout(dp=8, zero=3)),
    (Layout(pp=2, tp=2, sequence_parallel=True, zero=2, dp=2), Layout(pp=4, schedule="gpipe")),
    (Layout(dp=2, zero=3), Layout(pp=2, schedule="interleaved", virtual_stages=2)),
])  # fmt: skip
def test_a_checkpoint_of_one_layout_goes_on_under_another(before, after):
    s, params, batches = start("adamw")
    expected, states = one_device("adamw")

    def first(rank):
        m = Model(rank, params, s, before)
        return m.step(*batches[0], LR), m.state()

    loss, state = run(first, Mesh(before.dp, before.pp, before.tp))[0]

    def rest(rank):
        m = Model(rank, train.init_params(s.config, np.float64), s, after)
        m.load(state)
        return [m.step(*batch, LR) for batch in batches[1:]], m.state()

    losses, state = run(rest, Mesh(after.dp, after.pp, after.tp))[0]
    np.testing.assert_allclose([loss, *losses], expected, rtol=0, atol=1e-10)
    for name, right in states[-1].items():
        np.testing.assert_allclose(state[name], right, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("stage", range(4))
def test_gradients_held_between_two_micro_batches(stage, monkeypatch):
    """All of them, or with ZeRO-2 and 3 a share: what a layer has just made is reduced at once."""
    psi, dp = sum(weights().values()) * FLOAT, 4
    share = sum(weights(dp, padded=True).values()) * FLOAT // dp
    embedding = (weights(dp, padded=True)["wte.weight"] + N_CTX_PADDED * D) * FLOAT // dp
    held = defaultdict(list)

    def add(self, p, grads, right=Model.add):
        held[self.rank.rank].append(self.rank.device.held_by_kind["gradients"])
        right(self, p, grads)

    monkeypatch.setattr(Model, "add", add)
    s, params, batches = start("adamw")

    def program(rank):
        model = Model(rank, params, settings(micro_batch=1), Layout(dp=dp, zero=stage))
        model.step(*batches[0], LR)

    run(program, Mesh(dp=dp))
    second = held[0][N_LAYER + 2]  # the second micro-batch's head has run, and is not yet added
    if stage < 2:
        assert second == psi
    else:  # the embedding's share may still be under way
        assert share - embedding <= second <= share


@pytest.mark.parametrize("dp, pp, tp", [(1, 1, 1), (2, 2, 2), (1, 4, 1), (8, 1, 1), (1, 1, 4)])
@pytest.mark.parametrize("parallel_block", [False, True])
def test_the_forward_pass_gives_the_same_logits_on_every_layout(dp, pp, tp, parallel_block):
    s, params, batches = start("adamw", parallel_block)
    tokens = batches[0][0]  # [b, s]
    expected = np.split(gpt2(tokens, **params, n_head=s.n_head), dp)  # [b/dp, s, v] each

    def program(rank):
        logits = forward(rank, params, tokens, s.n_head)
        return rank.dp.rank, None if logits is None else logits.numpy()

    results = run(program, Mesh(dp, pp, tp))
    assert sum(logits is not None for _, logits in results) == dp * tp
    for part, logits in results:
        if logits is not None:
            np.testing.assert_allclose(logits, expected[part], rtol=0, atol=1e-10)
