"""Closed forms against slow loops, formulas written a second time, and what papers printed."""

import json
import math

import pytest

from gpt_numpy import flops
from gpt_numpy.flops import CONVENTIONS, MODELS, Config, mfu, model, n_params, training_flops
from gpt_numpy.hardware import gpu

ODD = Config(n_embd=12, n_head=3, n_layer=5, n_ctx=7, n_vocab=17)  # no two sizes alike
RUNS = {run.id: run for run in flops.published_runs()}


def each_run(wanted):
    runs = [run for run in RUNS.values() if wanted(run)]
    return pytest.mark.parametrize("run", runs, ids=lambda run: run.id)


# Parameters


def tensors(c, ln_2=True):
    """The shapes of a GPT-2 checkpoint, spelt out."""
    d = c.n_embd
    block = [(d,), (d,), (d, 3 * d), (3 * d,), (d, d), (d,)]  # ln_1, c_attn, c_proj
    block += [(d, 4 * d), (4 * d,), (4 * d, d), (d,)] + [(d,), (d,)] * ln_2  # c_fc, c_proj, ln_2
    return [(c.n_vocab, d), (c.n_ctx, d), *block * c.n_layer, (d,), (d,)]


@pytest.mark.parametrize("ln_2", [True, False])
@pytest.mark.parametrize("config", [ODD, MODELS["gpt2"], MODELS["gpt2-xl"]])
def test_parameters_are_the_sizes_of_the_tensors(config, ln_2):
    whole = sum(math.prod(shape) for shape in tensors(config, ln_2))
    assert n_params(config, parallel_block=not ln_2) == whole
    without = whole - config.n_ctx * config.n_embd
    assert n_params(config, wpe=False, parallel_block=not ln_2) == without


@pytest.mark.parametrize(
    "name, millions",  # of the released checkpoints
    [("gpt2", 124.44), ("gpt2-medium", 354.82), ("gpt2-large", 774.03), ("gpt2-xl", 1557.61)],
)
def test_gpt2_has_the_released_sizes(name, millions):
    assert round(n_params(model(name)) / 1e6, 2) == millions


@each_run(lambda run: run.id.startswith("sc21"))
def test_megatron_models_have_the_size_that_their_name_says(run):
    assert round(n_params(run.config) / 1e9, 1) == float(run.model[4:-1])  # "GPT-145.6B"


@pytest.mark.parametrize(
    "name, millions", [("small", 125), ("medium", 350), ("large", 760), ("xl", 1300)]
)
def test_small_gpt3_models_have_the_printed_size_within_two_per_cent(name, millions):
    assert n_params(model(f"gpt3-{name}")) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize("name", [n for n in MODELS if n[-1] == "b" and n[-2].isdigit()])
def test_models_have_the_size_that_their_name_says_within_four_per_cent(name):
    printed = float(name.rpartition("-")[2][:-1])
    assert n_params(model(name)) / 1e9 == pytest.approx(printed, rel=0.04)


def test_the_models_of_the_published_runs_are_in_the_table():
    assert {run.config for run in RUNS.values()} <= set(MODELS.values())


@pytest.mark.parametrize("config", MODELS.values())
def test_every_model_in_the_table_is_a_valid_shape(config):
    assert flops.check_config(config) is config


# FLOPs


def counted_pairs(seq, seen):
    return sum(seen(i, j) for i in range(seq) for j in range(seq))


@pytest.mark.parametrize("seq", [1, 2, 5, 8])
def test_attention_pairs_are_what_a_loop_over_the_mask_counts(seq):
    assert flops.attention_pairs(seq) == counted_pairs(seq, lambda i, j: True)
    assert flops.attention_pairs(seq, causal=True) == counted_pairs(seq, lambda i, j: j <= i)
    for w in range(1, seq + 3):
        windowed = counted_pairs(seq, lambda i, j, w=w: i - w < j <= i)
        assert flops.attention_pairs(seq, window=w) == windowed
        assert flops.attention_pairs(seq, causal=True, window=w) == windowed


def multiply_adds(rows, inner, columns):
    """A matmul, counted the slow way: a multiply and an add per term of every dot product."""
    return sum(2 for _ in range(rows) for _ in range(columns) for _ in range(inner))


def test_forward_flops_by_part_are_what_a_loop_over_the_matmuls_counts():
    d, heads, layers, s, v = ODD
    e, batch, seq = d // heads, 2, s - 2
    parts = flops.forward_flops(ODD, batch, seq)
    each = batch * layers
    assert parts["qkv"] == each * multiply_adds(seq, d, 3 * d)
    assert parts["proj"] == each * multiply_adds(seq, d, d)
    assert parts["scores"] == each * heads * multiply_adds(seq, e, seq)
    assert parts["values"] == each * heads * multiply_adds(seq, seq, e)
    assert parts["mlp"] == each * (multiply_adds(seq, d, 4 * d) + multiply_adds(seq, 4 * d, d))
    assert parts["head"] == batch * multiply_adds(seq, d, v)
    assert len(parts) == 6


@pytest.mark.parametrize("how", [{}, {"causal": True}, {"window": 3}])
def test_only_attention_depends_on_the_mask(how):
    full, masked = flops.forward_flops(ODD, 2), flops.forward_flops(ODD, 2, **how)
    share = flops.attention_pairs(7, **how) / 49
    for part in full:
        left = share if part in ("scores", "values") else 1
        assert masked[part] == pytest.approx(full[part] * left)


def test_training_is_three_forward_passes_and_what_recomputation_adds():
    for how in ({}, {"causal": True}, {"window": 3}, {"seq": 4}):
        parts = flops.forward_flops(ODD, 2, **how)
        forward = sum(parts.values())
        assert training_flops(ODD, 2, **how) == 3 * forward
        again = parts["scores"] + parts["values"]
        assert training_flops(ODD, 2, "selective", **how) == 3 * forward + again
        assert training_flops(ODD, 2, "full", **how) == 4 * forward - parts["head"]


def test_the_formulas_as_printed_equal_the_matmuls_counted():
    for c in (ODD, *MODELS.values()):
        d, _, layers, s, v = c
        tokens = 5 * s
        close = {"rel": 1e-14}
        counted = 72 * tokens * layers * d * d + 12 * tokens * layers * s * d + 6 * tokens * d * v
        assert training_flops(c, 5) == counted
        assert CONVENTIONS["korthikanti-mfu"].flops(c, 5) == pytest.approx(counted, **close)
        again = 24 * tokens * layers * d * d + 4 * tokens * layers * s * d
        assert CONVENTIONS["megatron-sc21"].flops(c, 5) == pytest.approx(counted + again, **close)
        scores = 4 * tokens * layers * s * d
        printed, corrected = "korthikanti-hfu", "korthikanti-hfu-corrected"
        assert CONVENTIONS[printed].flops(c, 5) == pytest.approx(counted + 3 * scores, **close)
        assert CONVENTIONS[corrected].flops(c, 5) == pytest.approx(counted + scores, **close)
        assert CONVENTIONS["causal"].flops(c, 5) == counted - 6 * tokens * layers * (s - 1) * d


def test_gpt2_per_token_in_every_convention():  # fl-01
    c, tokens = model("gpt2"), 1024
    assert (n_params(c), n_params(c, wpe=False)) == (124_439_808, 123_653_376)
    parts = flops.forward_flops(c, 1)
    attention = parts.pop("scores") + parts.pop("values")
    assert sum(parts.values()) == 247_064_064 * tokens
    assert attention == 37_748_736 * tokens
    of = {"matmul": 854_438_400, "causal": 797_870_592, "palm": 855_166_464, "6n": 741_920_256}
    for convention, flop in of.items():
        assert CONVENTIONS[convention].flops(c, 1) == flop * tokens
    full, half = 855_166_464, 798_543_360  # the rules 6N + 12LHQT and 6N + 6LHQT
    assert round(100 * mfu(full * 491_520, 0.25, 8, 312e12), 2) == 67.36
    assert round(100 * mfu(half * 491_520, 0.25, 8, 312e12), 2) == 62.90


def test_grouped_queries_swiglu_and_experts():  # fl-03
    h, layers, vocab = 4096, 32, 128_256
    attention = flops.attention_flops(n=1, d=h, pairs=8192, d_kv=1024)
    assert attention.pop("qkv") == 33_554_432 + 16_777_216
    assert attention == {"proj": 33_554_432, "scores": 67_108_864, "values": 67_108_864}
    attention["qkv"] = 50_331_648
    mlp = flops.mlp_flops(1, h, 14_336, matrices=3)
    head = flops.linear_flops(1, h, vocab)
    assert (mlp, head) == (352_321_536, 1_050_673_152)
    forward = layers * (sum(attention.values()) + mlp) + head
    assert forward == 19_304_284_160 and 3 * forward == 57_912_852_480
    matrices = (layers * (attention["qkv"] + attention["proj"] + mlp) + head) // 2
    norms = (2 * layers + 1) * h
    assert matrices + vocab * h + norms == 8_030_261_248  # the head is a matrix of its own
    plain = flops.forward_flops(Config(h, 32, layers, 8192, vocab), 1)
    assert sum(plain.values()) == 18_230_542_336 * 8192  # the formula that knows neither
    assert flops.moe_flops(1, 1024, 4096, n_experts=8, top_k=2) == 33_570_816
    assert flops.moe_flops(1, 1024, 4096, n_experts=8, top_k=8) == 134_234_112


# Utilisation


def test_utilisation_takes_its_peak_as_an_argument():  # fl-05
    assert round(100 * mfu(420e12, 1, 1, gpu("h200").peak), 1) == 42.4
    assert round(100 * mfu(420e12, 1, 1, gpu("h200").peak_sparse), 1) == 21.2
    hours = 2.79e6 * 3600
    assert round(100 * mfu(6 * 37e9 * 14.8e12, hours, 1, 1.513e15), 1) == 21.6
    assert round(100 * mfu(2 * 37e9 * 14.8e12, hours, 1, 1.513e15), 1) == 7.2


def test_palm_540b():
    """arXiv 2204.02311, section 4.1: 238,300 tokens/s on 6,144 TPU v4 of 275 TFLOP/s is 46.2 %."""
    per_token = flops.palm_flops(540.35e9, n_layer=118, d_attn=48 * 256, seq=2048)
    assert round(100 * mfu(238.3e3 * per_token, 1, 6144, 275e12), 1) == 46.2


@pytest.mark.parametrize(
    "tokens, n, layers, d, printed",  # MosaicML's llm-foundry, 128 H100, sequences of 2048
    [(1_340_830, 6_658_859_008, 32, 4096, 45.71), (135_490, 64_862_437_376, 80, 8192, 43.36)],
)
def test_palms_rule_gives_the_published_mfu_of_128_h100(tokens, n, layers, d, printed):
    per_second = tokens * flops.palm_flops(n, layers, d, 2048)
    percent = 100 * mfu(per_second, 1, 128, gpu("h100").peak)
    assert percent == pytest.approx(printed, abs=0.01)


# The convention that each table uses, and how far the table's figure may be off, in points
PRINTED = {
    "ms_t2_MT_768": ("korthikanti-mfu", "mfu_percent", 0.17),
    "ms_t2_MT_6144": ("korthikanti-mfu", "mfu_percent", 0.06),
    "ms_t2_MS": ("causal", "mfu_percent", 0.21),
    "sc21": ("megatron-sc21", "hfu_percent", 0.05),
    "ko_t5_22B": ("korthikanti-mfu", "mfu_percent", 0.15),
    "ko_t5_175B": ("korthikanti-mfu", "mfu_percent", 0.05),
    "ko_s63_530B": ("korthikanti-mfu", "mfu_percent", 0.05),
    "ko_t5": ("korthikanti-hfu", "hfu_percent", 0.11),
}
# Causal attention gives 60.7 % and not the printed 61.3 %; the whole square gives 61.5 %.
UNEXPLAINED = "ms_t2_MS_768_768"


@pytest.mark.parametrize("prefix", PRINTED)
def test_the_printed_utilisation_follows_from_the_printed_step_time(prefix):
    convention, column, points = PRINTED[prefix]
    rows = [run for run in RUNS.values() if run.id.startswith(prefix) and getattr(run, column)]
    assert rows
    for run in rows:
        error = round(run.percent(convention) - getattr(run, column), 2)
        if run.id == UNEXPLAINED:
            assert error == -0.63
        else:
            assert abs(error) <= points, run.id


def test_every_row_that_prints_a_utilisation_and_a_time_is_among_those_reproduced():
    for run in RUNS.values():
        for column in ("mfu_percent", "hfu_percent"):
            if getattr(run, column) and run.seconds_per_step:
                prefixes = [prefix for prefix, how in PRINTED.items() if how[1] == column]
                assert run.id.startswith(tuple(prefixes)), run.id


@each_run(lambda run: run.id.startswith(("ms_t2_MT", "ko")) and run.mfu_percent)
def test_what_is_left_of_the_papers_own_formula_is_the_rounding_of_printed_figures(run):
    half = 0.05 if run.id.startswith("ms_t2_MT_768") else 0.005  # 40.0 s, but 29.02 s
    least = run.percent("korthikanti-mfu") / (1 + half / run.seconds_per_step)
    most = run.percent("korthikanti-mfu") / (1 - half / run.seconds_per_step)
    assert least - 0.05 <= run.mfu_percent <= most + 0.05


@each_run(lambda run: run.id.startswith("ms_t2"))
def test_causal_attention_is_nearer_for_megascale_rows_and_the_square_for_megatron(run):
    square = abs(run.percent("korthikanti-mfu") - run.mfu_percent)
    causal_is_nearer = abs(run.percent("causal") - run.mfu_percent) < square
    assert causal_is_nearer == (run.system == "MegaScale" and run.id != UNEXPLAINED)


@each_run(lambda run: run.tflops_per_gpu)
def test_sc21_teraflops_count_recomputation(run):
    tflops = run.percent("megatron-sc21") / 100 * run.peak_tflops
    assert round(tflops) == run.tflops_per_gpu
    # Between the two is the recomputation of the blocks: exactly 3/4 but for the head
    assert 0.74 < run.percent("korthikanti-mfu") / run.percent("megatron-sc21") < 0.77


def test_selective_recomputation_of_the_22b_model_is_42_2_per_cent_and_not_43_7():
    run = RUNS["ko_t5_22B_selsp"]
    ratio = run.percent("korthikanti-hfu-corrected") / run.percent("korthikanti-mfu")
    assert round(run.mfu_percent * ratio, 1) == 42.2
    assert run.hfu_percent == 43.7


def test_megascale_against_megatron_on_one_convention():
    ms, mt = RUNS["ms_t2_MS_6144_12288"], RUNS["ms_t2_MT_6144_12288"]
    percents = [round(run.percent("korthikanti-mfu"), 1) for run in (ms, mt)]
    assert percents == [55.8, 41.3]
    assert round(mt.seconds_per_step / ms.seconds_per_step, 2) == 1.35
    assert round(ms.mfu_percent / mt.mfu_percent, 2) == 1.34


def test_exactly_four_rows_contradict_themselves():
    printed = {id: RUNS[id].aggregate_pflops for id in flops.contradicting_runs()}
    assert printed == {
        "ms_t2_MT_768_256": 43.3, "ms_t2_MT_768_512": 77.6, "ms_t2_MT_768_1024": 131.9,
        "ms_t2_MS_6144_12288": 2166.3,
    }  # fmt: skip


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("argument", ["flops_per_step", "seconds", "gpus", "peak"])
def test_nonsense_is_refused_by_name(argument, bad):
    given = {"flops_per_step": 1e15, "seconds": 1.0, "gpus": 8, "peak": 312e12, argument: bad}
    with pytest.raises(ValueError, match=f"^{argument} is {bad}: it must be a number above 0$"):
        mfu(**given)


def test_a_part_of_a_gpu_is_refused():
    with pytest.raises(ValueError, match="whole number"):
        mfu(1e15, 1.0, 2.5, 312e12)


# The report


def megascale(**how):
    config = model("gpt3-175b")._replace(n_vocab=64000)
    return flops.mfu_report(config, 12288, gpu("a100"), 6144, 6.34, **how)


def test_the_report_has_every_convention_and_survives_json():
    report = json.loads(json.dumps(megascale()))
    percents = {row["convention"]: row["percent"] for row in report["rows"]}
    assert set(percents) == set(CONVENTIONS)
    run = RUNS["ms_t2_MS_6144_12288"]
    for convention, percent in percents.items():
        assert percent == pytest.approx(run.percent(convention), rel=1e-12)  # heads do not matter
    assert report["tokens_per_second"] == pytest.approx(6144 * 2048 / 6.34)


def test_the_report_as_text_names_each_convention_with_its_figure_and_fits_100_columns():
    report = megascale()
    lines = flops.format_mfu(report).splitlines()
    for row in report["rows"]:
        assert f"{row['percent']:6.2f} % {row['kind']}  {row['convention']}" in lines
    assert max(map(len, lines)) <= 100
    assert "55.77 % MFU  korthikanti-mfu" in flops.format_mfu(report)


def test_the_report_says_what_the_sparse_peak_would_make_of_it():
    note = " ".join(megascale()["notes"])
    assert "624 TFLOP/s" in note and "55.8 % would read 27.9 %" in note


@pytest.mark.parametrize(
    "peak, name", [(624e12, "A100-80G"), (1979e12, "H100-80G"), (4500e12, "B200-180G")]
)
def test_the_report_says_so_when_the_sparse_peak_was_given(peak, name):
    note = " ".join(megascale(peak=peak)["notes"])
    percent = 55.773 * 312e12 / peak
    assert f"sparse peak of {name}" in note
    assert f"{percent:.1f} % is {2 * percent:.1f} %" in note


def test_the_report_is_silent_on_sparsity_where_there_is_none():
    report = flops.mfu_report(model("gpt2"), 8, gpu("v100"), 64, 1.0)
    assert "sparse" not in " ".join(report["notes"])


def test_the_report_doubts_more_than_100_per_cent():
    assert "Above 100 %" in " ".join(megascale(peak=312)["notes"])  # TFLOP/s in place of FLOP/s
    assert "Above 100 %" in " ".join(megascale(peak=125e12)["notes"])  # V100's
    assert "Above 100 %" not in " ".join(megascale()["notes"])


@pytest.mark.parametrize(
    "config, batch, word",
    [
        (Config(768, 0, 12, 1024, 50257), 8, "n_head"),
        (Config(768, 7, 12, 1024, 50257), 8, "n_head 7"),
        (Config(768, 12, 12.5, 1024, 50257), 8, "n_layer"),
        (Config(768, 12, 12, 1024, -1), 8, "n_vocab"),
        (MODELS["gpt2"], 0, "batch"),
        (MODELS["gpt2"], 1.5, "batch"),
    ],
)
def test_the_report_refuses_an_impossible_model_or_batch(config, batch, word):
    with pytest.raises(ValueError, match=word):
        flops.mfu_report(config, 8, gpu("a100"), batch, 1.0)


@pytest.mark.parametrize(
    "call, valid",
    [
        (lambda: model("gpt5"), "gpt3-175b"),
        (lambda: training_flops(ODD, 1, "some"), "none, selective, full"),
        (lambda: flops.activation_bytes(8, 1, 8, 2, recompute="some"), "none, selective, full"),
        (lambda: flops.activation_bytes(8, 1, 8, 2, tp=4), "tp 4"),
        (lambda: flops.attention_pairs(8, window=0), "1 at least"),
        (lambda: flops.state_bytes(1, zero=4), "0, 1, 2, 3"),
        (lambda: flops.warm_up("zigzag", 4, 8), "gpipe, 1f1b, interleaved"),
        (lambda: flops.bubble(4, 8, of="half"), "ideal or total"),
        (lambda: flops.ring_bytes("gather", 4, 8), "all_gather"),
    ],
)
def test_bad_input_gets_one_line_with_what_is_valid(call, valid):
    with pytest.raises(ValueError) as error:
        call()
    assert valid in str(error.value) and "\n" not in str(error.value)


# Memory


def test_activation_bytes_of_the_papers():  # sim-04 (c), and Table 2 written out
    layer = {"seq": 2048, "micro_batch": 1, "n_embd": 4096, "n_head": 32}
    assert flops.activation_bytes(**layer) == 956_301_312
    assert flops.activation_bytes(**layer, tp=8) == 192_937_984
    assert flops.activation_bytes(**layer, tp=8, sequence_parallel=True) == 119_537_664
    assert flops.activation_bytes(**layer, flash=True) == 285_212_672
    of_22b = {"seq": 2048, "micro_batch": 4, "n_embd": 6144, "n_head": 64, "tp": 8}
    assert flops.activation_bytes(**of_22b) == 1_325_400_064
    split = flops.activation_bytes(**of_22b, sequence_parallel=True, recompute="selective")
    assert split == 213_909_504
    assert flops.activation_bytes(**of_22b, recompute="full") == 100_663_296
    whole = flops.activation_bytes(**of_22b, sequence_parallel=True, recompute="full")
    assert whole == 100_663_296 // 8


def held(s, b, h, a, tp, dropout, parallel_block, element):
    """The arrays that a block's backward pass reads: (elements, bytes of one, split by tp?)."""
    n = s * b
    arrays = [(n * h, element, False)]  # the normalised input of ln_1
    arrays += [(n * h, element, False)]  # the input of c_attn
    arrays += [(n * h, element, True)] * 3  # queries, keys, values
    arrays += [(a * s * s * b, element, True)]  # the softmax
    arrays += [(n * h, element, True)]  # the input of attention's c_proj
    if not parallel_block:  # else the MLP reads the input of c_attn
        arrays += [(n * h, element, False)] * 2  # ln_2's and c_fc's
    arrays += [(4 * n * h, element, True)] * 2  # the inputs of GELU and of the MLP's c_proj
    if dropout:
        arrays += [(n * h, 1, False)] * 2  # the masks after both c_proj
        arrays += [(a * s * s * b, 1, True), (a * s * s * b, element, True)]  # of the softmax
    return sum(count * size // (tp if split else 1) for count, size, split in arrays)


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.parametrize("parallel_block", [True, False])
@pytest.mark.parametrize("element", [2, 4, 8])
def test_activation_bytes_are_the_arrays_added_up(tp, dropout, parallel_block, element):
    how = {"dropout": dropout, "parallel_block": parallel_block, "element": element}
    assert flops.activation_bytes(5, 3, 24, 4, tp, **how) == held(5, 3, 24, 4, tp, **how)


def test_activations_without_dropout_are_32sbh_and_2as2b():
    s, b, h, a = 16, 3, 24, 4
    how = {"seq": s, "micro_batch": b, "n_embd": h, "n_head": a, "dropout": False}
    assert flops.activation_bytes(**how) == 32 * s * b * h + 2 * a * s * s * b
    assert flops.activation_bytes(**how, recompute="selective") == 32 * s * b * h
    assert flops.activation_bytes(**how, recompute="selective", flash=True) == 32 * s * b * h


def test_zero_divides_optimizer_then_gradients_then_weights():  # sim-04 (a)
    stages = [flops.state_bytes(7.5e9, dp=64, zero=stage) / 1e9 for stage in range(4)]
    assert stages == pytest.approx([120, 31.40625, 16.640625, 1.875], rel=1e-15)
    assert [flops.state_bytes(1, dp=1, zero=stage) for stage in range(4)] == [16] * 4
    fp32 = [flops.state_bytes(64, dp=64, zero=stage, grad_bytes=4) for stage in range(4)]
    assert fp32 == [18 * 64, 6 * 64 + 12, 2 * 64 + 16, 18]


# Pipelines


def test_micro_batches_in_flight():  # sim-04 (b), par-07
    assert flops.in_flight("1f1b", 4, 8) == [4, 3, 2, 1]
    assert flops.in_flight("1f1b", 4, 2) == [2, 2, 2, 1]
    assert flops.in_flight("gpipe", 4, 8) == [8, 8, 8, 8]
    assert flops.in_flight("interleaved", 4, 8, 2) == [11, 9, 7, 5]
    assert flops.in_flight("interleaved", 4, 4, 2) == [8, 8, 7, 5]  # never more than there are
    assert flops.warm_up("1f1b", 4, 8) == [3, 2, 1, 0]
    assert flops.warm_up("1f1b", 4, 2) == [2, 2, 1, 0]
    assert flops.warm_up("interleaved", 4, 8, 2) == [10, 8, 6, 4]
    with pytest.raises(ValueError, match="micro_batches 6 must divide by pp 4"):
        flops.warm_up("interleaved", 4, 6, 2)


def played(pp, m, v, forward, backward):
    """The makespan of the schedule that `warm_up` describes, played chunk by chunk on ranks."""
    name = "interleaved" if v > 1 else "1f1b"
    done, clock, queues = {}, [0] * pp, []
    for warm in flops.warm_up(name, pp, m, v):
        groups = range(m // pp) if v > 1 else range(m)
        size = pp if v > 1 else 1
        forwards = [("F", g * size + i, c) for g in groups for c in range(v) for i in range(size)]
        backwards = [("B", n, v - 1 - c) for _, n, c in forwards]
        steady = [x for pair in zip(forwards[warm:], backwards, strict=False) for x in pair]
        queues.append(forwards[:warm] + steady + backwards[len(forwards) - warm :])
    while any(queues):
        for rank, queue in enumerate(queues):
            while queue:
                kind, n, c = queue[0]
                stage = c * pp + rank
                before = ("F", n, stage - 1) if kind == "F" else ("B", n, stage + 1)
                if kind == "F" and stage == 0:
                    ready = 0
                elif kind == "B" and stage == v * pp - 1:
                    ready = done["F", n, stage]
                elif before in done:
                    ready = done[before]
                else:
                    break
                clock[rank] = max(clock[rank], ready) + (forward if kind == "F" else backward)
                done[kind, n, stage] = clock[rank]
                queue.pop(0)
    return max(clock)


@pytest.mark.parametrize(
    "pp, m, v", [(1, 3, 1), (4, 2, 1), (4, 8, 1), (3, 5, 1), (4, 8, 2), (2, 4, 3)]
)
def test_makespan_and_bubble_are_those_of_the_schedule_played(pp, m, v):
    makespan = played(pp, m, v, forward=1, backward=2)
    assert flops.pipeline_seconds(pp, m, v, 2 * v, virtual_stages=v) == makespan
    busy = 3 * m * v
    assert flops.bubble(pp, m, v) == pytest.approx((makespan - busy) / busy)
    assert flops.bubble(pp, m, v, of="total") == pytest.approx(1 - busy / makespan)


@pytest.mark.parametrize(
    "batch, gpus, tp, pp, v, share",
    [
        (6144, 12288, 8, 8, 6, 0.035176), (768, 256, 8, 8, 6, 0.0060397),
        (768, 1024, 8, 8, 6, 0.023729), (64, 64, 1, 1, 1, 0),
    ],
)  # fmt: skip
def test_bubble_of_published_layouts(batch, gpus, tp, pp, v, share):
    micro_batches = batch * tp * pp // gpus
    assert flops.bubble(pp, micro_batches, v, of="total") == pytest.approx(share, rel=1e-4)


# Rings


def ring(n, rounds, size):
    """Pass shards around a ring, step by step: messages in a row, bytes sent by one rank."""
    sent = [0.0] * n
    steps = 0
    for _ in range(rounds):
        for _ in range(n - 1):
            steps += 1
            sent = [bytes + size / n for bytes in sent]
    return steps, sent[0]


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "op, rounds", [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)]
)
def test_ring_steps_and_bytes_are_those_of_shards_passed_around(op, rounds, n):
    steps, sent = ring(n, rounds, 1e9)
    assert flops.ring_steps(op, n) == steps
    assert flops.ring_bytes(op, n, 1e9) == pytest.approx(sent)


def test_ring_seconds():  # sim-01
    link = {"size": 1e9, "bandwidth": 100e9}
    assert flops.ring_seconds("all_reduce", 8, **link) == pytest.approx(17.5e-3)
    assert flops.ring_bytes("all_reduce", 8, 1e9) == 1.75e9
    assert flops.ring_steps("all_reduce", 8) == 14
    assert flops.ring_seconds("all_reduce", 8, **link, latency=5e-6) == pytest.approx(17.57e-3)
    for op in ("all_gather", "reduce_scatter", "all_to_all"):
        assert flops.ring_seconds(op, 8, **link) == pytest.approx(8.75e-3)
    for op in flops.RING_ROUNDS:
        assert flops.ring_seconds(op, 1, **link, latency=5e-6) == 0
    assert flops.ring_seconds("all_reduce", 2, **link) == pytest.approx(10e-3)
    shard = 125e6
    assert flops.ring_seconds("all_gather", 8, 8 * shard, 100e9) == pytest.approx(8.75e-3)


# Published rows


def test_published_rows_are_typed():
    assert len(RUNS) == 40
    run = RUNS["sc21_t1_1008.0B"]
    assert run.config == Config(25600, 160, 128, 2048, 51200)
    assert (run.tp, run.pp, run.dp, run.n_gpus, run.global_batch) == (8, 64, 6, 3072, 3072)
    assert (run.recompute, run.sequence_parallel, run.mfu_percent) == ("full", False, None)
    assert (run.seconds_per_step, run.hfu_percent, run.peak_tflops) == (102.63, 52.2, 312.0)
    assert RUNS["ko_t5_22B_selsp"].sequence_parallel is True
    assert sum(run.split == "calibrate" for run in RUNS.values()) == 8
    times = flops.layer_times()
    assert [t.combined_ms for t in times] == [19.6, 19.0, 27.2, 20.9, 20.3]
    assert [t.overhead_pct for t in times] == [None, -3, 39, 7, 4]


def test_the_tables_of_the_runs_name_gpus_that_exist():
    for run in RUNS.values():
        assert gpu(run.gpu).peak == run.peak_tflops * 1e12


DAMAGE = [  # column, from, to
    ("n_embd", "12288", "12,288"), ("n_layer", "96", ""), ("n_gpus", "256", "0"),
    ("n_gpus", "256", "257"), ("seconds_per_step", "40.0", "40.0 s"),
    ("seconds_per_step", "40.0", "nan"), ("mfu_percent", "53.0", "53,0"),
    ("recompute", "none", "nothing"), ("sequence_parallel", "1", "yes"),
    ("split", "calibrate", ""), ("global_batch", "768", "767"), ("micro_batch", "1", "-1"),
    ("seconds_per_step", "40.0", "0"), ("seconds_per_step", "40.0", "0.00"),
    ("seconds_per_step", "40.0", "-40.0"), ("mfu_percent", "53.0", "0"),
    ("peak_tflops", "312", "0"), ("gpu", "A100-80G", "A1000"),
    ("tp", "8", "1\u0668"),  # an eighteen, but not in ASCII
]  # fmt: skip


@pytest.mark.parametrize("column, old, new", DAMAGE)
def test_a_damaged_cell_is_named_by_file_line_and_column(tmp_path, column, old, new):
    lines = (flops.PUBLISHED / "training_runs.csv").read_text(encoding="utf-8").splitlines()
    cells = lines[1].split(",")
    where = lines[0].split(",").index(column)
    assert cells[where] == old
    cells[where] = f'"{new}"'
    copy = tmp_path / "runs.csv"
    copy.write_text("\n".join([lines[0], lines[2], ",".join(cells)]), encoding="utf-8")
    with pytest.raises(ValueError) as error:
        flops.published_runs(copy)
    assert f"runs.csv, line 3, column {column}: " in str(error.value)


@pytest.mark.parametrize(
    "damage, where",
    [
        (lambda lines: [lines[0], lines[1] + ",more"], "line 2, column after the last: 29"),
        (lambda lines: [lines[0], lines[1].rpartition(",")[0]], "line 2, column note: 27 cells"),
        (lambda lines: [lines[0], lines[1][:40]], "line 2, column "),
        (lambda lines: [lines[0], "", lines[1]], "line 2, column id: 0 cells"),
        (lambda lines: lines[:1], "line 2: there must be a row"),
        (lambda lines: [*lines[:3], lines[1]], "line 4, column id: 'ms_t2_MT_768_256' is that of"),
        (lambda lines: lines[1:], "line 1: the columns must be id,system"),
        (lambda lines: [], "line 1: the columns must be id,system"),
    ],
)
def test_a_damaged_table_is_named_by_file_and_line(tmp_path, damage, where):
    lines = (flops.PUBLISHED / "training_runs.csv").read_text(encoding="utf-8").splitlines()
    copy = tmp_path / "runs.csv"
    copy.write_text("\n".join(damage(lines)), encoding="utf-8")
    with pytest.raises(ValueError) as error:
        flops.published_runs(copy)
    assert str(error.value).startswith(f"runs.csv, {where}")


def test_bytes_that_are_no_text_are_named_by_file_and_line(tmp_path):
    lines = (flops.PUBLISHED / "training_runs.csv").read_bytes().splitlines(keepends=True)
    copy = tmp_path / "runs.csv"
    copy.write_bytes(lines[0] + lines[1] + b"\xff" + lines[2])
    with pytest.raises(ValueError, match=r"^runs\.csv, line 3: not UTF-8 text"):
        flops.published_runs(copy)


@pytest.mark.parametrize("id, column", [("ms_t3_1", "mfu_percent"), ("ko_t5_22B_full", "seconds")])
def test_a_row_without_the_figure_that_it_is_for_is_refused(tmp_path, id, column):
    lines = (flops.PUBLISHED / "training_runs.csv").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"{id},"))
    cells = line.split(",")
    cells[20:22] = ["", "" if column == "mfu_percent" else "40"]
    copy = tmp_path / "runs.csv"
    copy.write_text("\n".join([lines[0], ",".join(cells)]), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^runs.csv, line 2, column {column}"):
        flops.published_runs(copy)
