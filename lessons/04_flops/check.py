"""The checks of lesson 4."""

from gpt_numpy import layers
from gpt_numpy.checkpoint import gpt2_shapes, unflatten
from gpt_numpy.device import Device
from gpt_numpy.hardware import GPUS
from lessons.checking import same


def product(linear_flops, right, n, d_in, d_out):
    macs = n * d_in * d_out
    same(
        linear_flops(n, d_in, d_out),
        right,
        f"FLOPs of [{n}, {d_in}] @ [{d_in}, {d_out}], forward and backward",
        {
            "a multiply and an add are two FLOPs, not one": (macs, 2 * macs),
            "backward there are two products, for dx and for dw": (2 * macs, 2 * macs),
            "that is a second forward pass counted in: without recomputation backward is two "
            "products of the same size": (2 * macs, 6 * macs),
            "the n rows are missing": (2 * d_in * d_out, 4 * d_in * d_out),
            "that is one product and another: backward alone has two": (2 * macs, macs),
            "each number in y has d_in - 1 adds, but by convention d_in are counted": (
                2 * macs - n * d_out,
                4 * macs - n * d_in - d_in * d_out,
            ),
        },
    )


def check_a_small_product(linear_flops):
    product(linear_flops, (120, 240), 4, 3, 5)


def check_a_product_of_two_numbers(linear_flops):
    product(linear_flops, (2, 4), 1, 1, 1)


def check_what_a_device_counts_for_a_product(linear_flops):
    for n, d_in, d_out in [(7, 2, 11), (1, 13, 3), (2048, 12288, 49152)]:
        device = Device()
        x, w, dy = (device.empty(shape) for shape in [(n, d_in), (d_in, d_out), (n, d_out)])
        _ = x @ w
        forward = device.matmul_flops
        _ = dy @ w.T, x.T @ dy
        product(linear_flops, (forward, device.matmul_flops - forward), n, d_in, d_out)


def step(batch, seq, depth, h, v, matrices=24, attention=4, head=2):
    """FLOPs of a training step, with factors that may be wrong."""
    n = batch * seq
    return 3 * (depth * (matrices * n * h * h + attention * n * seq * h) + head * n * h * v)


def training(model_flops, right, batch, seq, depth, h, v):
    sizes = (batch, seq, depth, h, v)
    forward = step(*sizes) // 3
    mistakes = {
        "the scores and the weighted values are missing: matmuls without parameters are "
        "matmuls, too": step(*sizes, attention=0),
        "half of attention is missing: both scores and weighted values count, each over the whole "
        "square": step(*sizes, attention=2),
        "the vocabulary is counted twice: looking up a row is no matmul": step(*sizes, head=4),
        "the logits are missing: the head is a matmul, [h] by [h, v]": step(*sizes, head=0),
        "V/16Lh belongs to the formula with 96 in front (full recomputation); with 72 it is "
        "V/12Lh": step(*sizes, head=1.5),
        "attention is counted for what a causal mask leaves: the convention here is the whole "
        "square": step(*sizes, attention=2 * (seq + 1) / seq),
        "the logits are computed once, not in each layer": step(*sizes, head=2 * depth),
        "the logits of every token are computed, not only of the last": step(*sizes, head=2 / seq),
        "the MLP is 4 n_embd wide, so its two matrices have 8 n_embd^2 numbers": step(
            *sizes, matrices=12
        ),
        "all n = batch * seq tokens attend to each other: only those of one sequence do": step(
            *sizes, attention=4 * batch
        ),
        "that is the forward pass alone": forward,
        "backward is as much as forward twice: three forward passes in all": 2 * forward,
        "a second forward pass is counted: nothing is recomputed here": 4 * forward,
        "a multiply and an add are two FLOPs, not one": step(*sizes) / 2,
    }
    what = f"batch {batch}, seq {seq}, n_layer {depth}, n_embd {h}, n_vocab {v}"
    same(model_flops(*sizes), right, f"FLOPs of a step with {what}", mistakes)


def check_a_tiny_model(model_flops):
    training(model_flops, 744, 1, 2, 1, 2, 3)


def check_a_step_of_175b(model_flops):
    """The 175B model of arXiv 2205.05198, Table 3, by its equation 7."""
    training(model_flops, 141091531099471872, 64, 2048, 96, 12288, 51200)


def check_attention_grows_with_the_square(model_flops):
    """Of one width, without a vocabulary: 24 B s h^2 + 4 B s^2 h."""
    for seq, right in ((4, 480), (8, 1344), (1, 84)):
        training(model_flops, right, 1, seq, 1, 1, 0)


def check_what_a_device_counts_for_a_model(model_flops):
    for batch, seq, n_layer, h, v in [(2, 7, 5, 12, 17), (3, 5, 1, 8, 11), (1, 64, 2, 16, 300)]:
        device = Device()
        params = {
            name: device.empty(shape) for name, shape in gpt2_shapes(v, seq, h, n_layer).items()
        }
        ids = device.empty((batch, seq), int)
        _, back = layers.gpt2(ids, unflatten(params), ids, batch * seq, n_head=2)
        back()
        training(model_flops, device.matmul_flops, batch, seq, n_layer, h, v)


# tokens per second, n_params, n_layer, n_embd, seq, gpus: rows of MosaicML's llm-foundry
ROWS = {
    "7B": (1_340_830, 6_658_859_008, 32, 4096, 2048, 128),
    "70B": (135_490, 64_862_437_376, 80, 8192, 2048, 128),
}


def utilisation(mfu, row, gpu):
    tokens, n, depth, h, seq, gpus = row

    def share(params=6, attention=12, peak=gpu.peak, count=gpus):
        return tokens * (params * n + attention * depth * h * seq) / (count * peak)

    mistakes = {
        f"that is by a peak of {other / 1e12:g} TFLOP/s; {gpu.name} has {gpu.peak / 1e12:g} "
        "for dense matrices": share(peak=other)
        for g in (gpu, *GPUS.values())
        for other in (g.peak_sparse, g.peak)
        if other and other != gpu.peak
    }
    mistakes |= {
        "that is HFU, with a forward pass recomputed: MFU counts what the model needs": share(
            8, 16
        ),
        "attention is missing: 6N + 12 n_layer n_embd seq": share(attention=0),
        "attention is halved: the convention here is 12 n_layer n_embd seq": share(attention=6),
        "that is in per cent: a fraction is asked for": 100 * share(),
        "that is as if all were done by one GPU": share(count=1),
        "that is divided by the GPUs twice: tokens_per_second is of the whole job": share(
            count=gpus * gpus
        ),
        "that is the forward pass alone, 2N": share(2, 4),
    }
    what = f"MFU of {n / 1e9:.1f} billion parameters on {gpus} {gpu.name}"
    same(mfu(*row, gpu), share(), what, mistakes)
    return share()


def check_a_published_7b_row(mfu):
    assert round(100 * utilisation(mfu, ROWS["7B"], GPUS["h100"]), 2) == 45.71


def check_a_published_70b_row_with_recomputation(mfu):
    """Printed: MFU 43.36 %, HFU 57.81 %, with activation checkpointing."""
    assert abs(100 * utilisation(mfu, ROWS["70B"], GPUS["h100"]) - 43.36) < 0.01


def check_any_gpu_has_its_own_peak(mfu):
    new = GPUS["a100"]._replace(name="a new GPU", peak=77e12, peak_sparse=None)
    for gpu in (*GPUS.values(), new):
        utilisation(mfu, (20_000, 1_300_000_000, 24, 2048, 1024, 8), gpu)


def check_long_sequences_are_mostly_attention(mfu):
    for tokens, seq, gpus in ((3_000, 100_000, 7), (3_000, 1, 1)):
        utilisation(mfu, (tokens, 354_000_000, 24, 1024, seq, gpus), GPUS["a100"])


def check_a_claim_that_cannot_be_is_above_1(mfu):
    assert utilisation(mfu, (40_000, 354_000_000, 24, 1024, 100_000, 1), GPUS["a100"]) > 1
