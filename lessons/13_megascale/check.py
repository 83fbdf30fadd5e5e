"""The checks of lesson 13."""

from math import log

from gpt_numpy import layers
from gpt_numpy.checkpoint import gpt2_shapes, unflatten
from gpt_numpy.device import Device
from gpt_numpy.flops import published_runs
from lessons.checking import same

# ---- scaling_efficiency


def scaling(scaling_efficiency, n0, t0, n, t, what=""):
    more, faster = n / n0, t0 / t
    right = n0 * t0 / (n * t)
    mistakes = {
        "nothing caps it at 1: with more GPUs a share may fit better": min(1, right),
        "that is the speed-up: of how many times as many GPUs?": faster,
        "that is the other way round: more GPU-seconds for a step mean a smaller efficiency": 1
        / right,
        "that is t / t0, without the GPUs, and the wrong way round": t / t0,
        "that keeps the time of a step, as weak scaling does; here the batch is the same": min(
            1, faster
        ),
        "that is what is lost": 1 - right,
        "a ratio is asked for, not how far the speed-up is from the GPUs' factor": more - faster,
        "that is in per cent: a fraction is asked for": 100 * right,
        "that compares only the GPUs that came in addition": (faster - 1) / ((more - 1) or 1),
        "that is the exponent of the speed-up": log(faster) / (log(more) or 1),
        "that is the seconds saved over those hoped for": (t0 - t) / ((t0 - t0 / more) or 1),
    }
    same(
        scaling_efficiency(n0, t0, n, t),
        right,
        f"efficiency from {n0} GPUs in {t0} s to {n} in {t} s{what}",
        {hint: value for hint, value in mistakes.items() if abs(value - right) > 1e-9},
    )


def check_twice_as_many_take_half_the_time(scaling_efficiency):
    for n0, t0 in ((1, 10.0), (8, 3.0), (3072, 28.0)):
        scaling(scaling_efficiency, n0, t0, 2 * n0, t0 / 2)
        scaling(scaling_efficiency, n0, t0, 7 * n0, t0 / 7)


def check_more_gpus_for_nothing(scaling_efficiency):
    for more in (2, 3, 48):
        scaling(scaling_efficiency, 256, 12.0, 256 * more, 12.0)


def check_published_seconds(scaling_efficiency):
    """Of MegaScale's Table 2; within a batch, from its fewest GPUs."""
    runs = [run for run in published_runs() if run.id.startswith("ms_t2")]
    for run in runs:
        first = next(
            r for r in runs if (r.system, r.global_batch) == (run.system, run.global_batch)
        )
        pair = (first.n_gpus, first.seconds_per_step, run.n_gpus, run.seconds_per_step)
        scaling(scaling_efficiency, *pair, f" ({run.system}, batch {run.global_batch})")


def check_it_may_be_above_1(scaling_efficiency):
    scaling(scaling_efficiency, 1, 10.0, 2, 4.0)
    scaling(scaling_efficiency, 6, 9.0, 9, 5.0)


def check_from_many_to_few(scaling_efficiency):
    scaling(scaling_efficiency, 1024, 11.9, 256, 40.0)
    scaling(scaling_efficiency, 5, 2.0, 3, 3.0)


# ---- bubble_of_row


def idle(bubble_of_row, batch, b, gpus, tp, pp, v):
    dp = gpus // tp // pp
    passes = 0  # through a chunk, of one pipeline
    for _ in range(0, batch, dp * b):
        passes += v

    def share(busy, missed=pp - 1):
        return missed / (busy + missed) if busy + missed else 0.0

    mistakes = {
        "interleaving makes the bubble v times smaller: it is filled with smaller chunks": share(
            passes / v
        ),
        "that is as if all of the batch went through one pipeline: dp pipelines share it": share(
            batch // b * v
        ),
        "that is as if each GPU took its own part of the batch: those of a pipeline share one": (
            share(batch / gpus / b * v)
        ),
        "the same, and interleaving makes the bubble v times smaller": share(batch / gpus / b),
        "a micro-batch may have more than one sequence": share(batch // dp * v),
        "larger micro-batches are fewer, not more": share(batch // dp * b * v),
        "chunks make the bubble v times shorter, not longer": share(passes / v, (pp - 1) * v),
        "that is idle over busy time: asked is its share of the whole": (pp - 1) / passes,
        "that is idle over busy time, without interleaving": (pp - 1) * v / passes,
        "pipelines are not n_gpus / pp: each stage is tp GPUs": share(
            batch / (gpus / pp) / b * v
        ),
        "pipelines are not n_gpus / tp: each has pp stages": share(batch / (gpus / tp) / b * v),
        "that is as if virtual stages were more stages, of the same size": share(
            passes / v, pp * v - 1
        ),
        "not the share shrinks v times, but the idle time": share(passes / v) / v,
        "a stage does not wait for itself: the pipeline fills in pp - 1 passes": share(passes, pp),
        "that is one of two directions: a stage is idle when it fills and when it drains, and "
        "busy forward and backward": share(2 * passes),
        "and both directions have their passes: idle twice, busy twice": share(
            passes, 2 * (pp - 1)
        ),
        "that is the share in which it is busy": 1 - share(passes),
        "that is in per cent: a fraction is asked for": 100 * share(passes),
        "that is the idle time of all stages together": pp * share(passes),
    }
    right = share(passes)
    what = (
        f"batch {batch} in micro-batches of {b} on {gpus} GPUs, tp {tp}, pp {pp}, "
        f"virtual_stages {v}"
    )
    got = bubble_of_row(batch, b, gpus, tp, pp, v)
    same(got, right, what, {h: x for h, x in mistakes.items() if abs(x - right) > 1e-9})


def check_a_small_pipeline(bubble_of_row):
    idle(bubble_of_row, 24, 2, 24, 3, 4, 1)
    idle(bubble_of_row, 12, 1, 3, 1, 3, 1)
    idle(bubble_of_row, 30, 5, 10, 1, 5, 1)


def check_megascale_rows(bubble_of_row):
    for batch, gpus in [(6144, 12288), (768, 256), (768, 1024), (6144, 3072)]:
        idle(bubble_of_row, batch, 1, gpus, 8, 8, 6)
    assert abs(bubble_of_row(6144, 1, 12288, 8, 8, 6) - 0.035176) < 1e-6


def check_rows_of_other_papers(bubble_of_row):
    """Layouts of all kinds: arXiv 2104.04473, Table 1, and 2205.05198, Tables 3 and 5."""
    for r in published_runs():
        if not r.id.startswith("ms_"):
            idle(bubble_of_row, r.global_batch, r.micro_batch, r.n_gpus, r.tp, r.pp,
                 r.virtual_stages)  # fmt: skip


def check_no_pipeline_no_bubble(bubble_of_row):
    for batch, b, gpus, tp in [(64, 1, 64, 1), (8, 4, 1, 1), (512, 16, 32, 8)]:
        idle(bubble_of_row, batch, b, gpus, tp, 1, 1)


def check_uneven_layouts(bubble_of_row):
    for sizes in [(90, 3, 30, 2, 3, 5), (56, 2, 28, 1, 7, 2), (24, 1, 24, 4, 6, 1)]:
        idle(bubble_of_row, *sizes)


# ---- mfu_of_row


def matmuls(batch, seq, depth, h, v, matrices=24, attention=4, head=2):
    """FLOPs of a forward pass, with factors that may be wrong."""
    n = batch * seq
    return depth * (matrices * n * h * h + attention * n * seq * h) + head * n * h * v


def utilisation(mfu_of_row, row, seconds, gpus, peak, what):
    batch, seq, depth, h, v = row
    forward = matmuls(*row)

    def share(flops=3 * forward, peak=peak, gpus=gpus):
        return flops / (seconds * gpus * peak)

    n = batch * seq
    scores = depth * 4 * n * seq * h
    no_scores = 3 * matmuls(*row, attention=0)
    mistakes = {
        "that is HFU of selective recomputation as printed (equation 8, s/3h): MFU counts nothing "
        "twice": share(3 * forward + 3 * scores),
        "that is HFU of selective recomputation: MFU counts what the model needs, and nothing "
        "twice": share(3 * forward + scores),
        "that is HFU of full recomputation: MFU counts what the model needs, and nothing twice": (
            share(3 * forward + forward - 2 * n * h * v)
        ),
        "a second forward pass is counted: nothing is recomputed": share(4 * forward),
        "that is 6N a token, N of the layers only: scores, weighted values and logits are "
        "matmuls, too": share(3 * matmuls(*row, attention=0, head=0)),
        "that is 6N a token: scores and weighted values are matmuls, too": share(no_scores),
        "the logits are missing: [n_embd] by [n_embd, n_vocab] for each token": share(
            3 * matmuls(*row, head=0)
        ),
        "the vocabulary is counted twice: looking up a row is no matmul": share(
            3 * matmuls(*row, head=4)
        ),
        "half of attention is missing: scores and weighted values, each over the whole square": (
            share(3 * matmuls(*row, attention=2))
        ),
        "attention is counted for what a causal mask leaves: the convention here is the whole "
        "square": share(3 * matmuls(*row, attention=2 * (seq + 1) / seq)),
        "V/16hL belongs to the formula with 96 in front; with 72 it is V/12hL": share(
            3 * matmuls(*row, head=1.5)
        ),
        "the MLP is 4 n_embd wide": share(3 * matmuls(*row, matrices=12)),
        "global_batch is in sequences, each of n_ctx tokens": share(3 * forward / seq),
        "that is the forward pass alone": share(forward),
        "backward is as much as forward twice: three forward passes in all": share(2 * forward),
        "that is half: a multiply and an add are two FLOPs, and the peak is given, of dense "
        "matrices": share(peak=2 * peak),
        "that is as if one GPU did all": share(gpus=1),
        "the peak is given: it is not always that of an A100": share(peak=312e12),
        "that is in per cent: a fraction is asked for": share(300 * forward),
        "seconds are of one step": share() * seconds,
    }
    mistakes = {h: x for h, x in mistakes.items() if abs(x / share() - 1) > 1e-9}
    same(mfu_of_row(*row, seconds, gpus, peak), share(), f"MFU of {what}", mistakes)
    return share()


def published(mfu_of_row, run, convention_is_ours):
    row = (run.global_batch, run.n_ctx, run.n_layer, run.n_embd, run.n_vocab)
    what = f"{run.system}, {run.model}, {run.n_gpus} GPUs"
    peak = run.peak_tflops * 1e12
    found = 100 * utilisation(mfu_of_row, row, run.seconds_per_step, run.n_gpus, peak, what)
    assert not convention_is_ours or abs(found - run.mfu_percent) < 0.21, what


def check_rows_of_the_recomputation_paper(mfu_of_row):
    """arXiv 2205.05198, Table 5: 51.4 % of the 175B model, 56.0 % of the 530B model."""
    found = [
        utilisation(mfu_of_row, row, seconds, gpus, 312e12, what)
        for row, seconds, gpus, what in [
            ((64, 2048, 96, 12288, 51200), 13.75, 64, "the 175B model"),
            ((280, 2048, 105, 20480, 51200), 37.83, 280, "the 530B model"),
        ]
    ]
    assert [round(x, 5) for x in found] == [0.51388, 0.56046]


def check_rows_of_megatron_lm(mfu_of_row):
    """Of MegaScale's Table 2, which prints them in this convention."""
    for run in published_runs():
        if run.id.startswith("ms_t2_MT"):
            published(mfu_of_row, run, True)


def check_rows_of_megascale(mfu_of_row):
    """Its own rows, in our convention and not in theirs."""
    for run in published_runs():
        if run.id.startswith("ms_t2_MS"):
            published(mfu_of_row, run, False)


def check_what_a_device_counts(mfu_of_row):
    for row in [(2, 7, 5, 12, 17), (3, 5, 1, 8, 11), (1, 64, 2, 16, 300)]:
        batch, seq, depth, h, v = row
        device = Device()
        params = {k: device.empty(s) for k, s in gpt2_shapes(v, seq, h, depth).items()}
        ids = device.empty((batch, seq), int)
        _, back = layers.gpt2(ids, unflatten(params), ids, batch * seq, n_head=2)
        back()
        assert device.matmul_flops == 3 * matmuls(*row)
        utilisation(mfu_of_row, row, 0.25, 3, 1e7, f"a small model, (B, s, L, h, V) = {row}")


def check_long_sequences_and_other_gpus(mfu_of_row):
    for seq, gpus, peak in [(131072, 24, 989.5e12), (1, 7, 125e12), (2048, 1, 2250e12)]:
        what = f"n_ctx {seq}, {gpus} GPUs of {peak / 1e12:g} TFLOP/s"
        utilisation(mfu_of_row, (5, seq, 3, 1600, 50257), 3.5, gpus, peak, what)
