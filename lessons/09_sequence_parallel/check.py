"""The checks of lesson 9. Their oracles are of one device, or loops."""

import numpy as np

from gpt_numpy import layers
from gpt_numpy.checkpoint import flatten
from gpt_numpy.gpt2 import attention_mask
from gpt_numpy.layers import Pair
from gpt_numpy.mesh import Mesh
from lessons.checking import SIZES, brief, on_ranks, parts_of_block, same, unchanged


def draw(*shape, seed=0):  # no two alike, and none of them 0
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def sent(mesh):
    return sum(device.sent["tp"] for device in mesh.devices)


def not_more_than(got, limit, what, hint):
    if got > limit:
        raise AssertionError(f"{what}: {got:,}, expected {limit:,} at most: {hint}")


# mlp

N, D, F = 24, 12, 36  # tokens, n_embd, hidden units


def relu(x):
    return np.maximum(x, 0)


def run_mlp(mlp, n):
    """The answer, [y, dx, da, db] by rank; what is right; the inputs; the mesh."""
    x, a, b, dy = draw(N, D), draw(D, F), draw(F, D), draw(N, D, seed=1)
    inputs = np.split(x, n), np.split(a, n, axis=1), np.split(b, n), np.split(dy, n)
    mesh = Mesh(tp=n)

    def program(rank, *arrays):
        answer = mlp(*arrays, rank.tp)
        if not isinstance(answer, (tuple, list)) or len(answer) != 4:
            raise AssertionError(f"expected y, dx, da and db, got {brief(answer)}")
        return answer

    got = on_ranks(program, mesh, *inputs)
    h = x @ a
    dh = dy @ b.T * (h > 0)
    right = {
        "y": np.split(relu(h) @ b, n), "dx": np.split(dh @ a.T, n),
        "da": np.split(x.T @ dh, n, axis=1), "db": np.split(relu(h).T @ dy, n),
    }  # fmt: skip
    return [list(values) for values in zip(*got)], right, (x, *inputs), mesh


def rows(parts):  # each rank's rows of its own array
    n = len(parts)
    return [np.split(part, n)[r] for r, part in enumerate(parts)]


def check_mlp_forward(mlp):
    for n in SIZES:
        got, right, (x, _, As, Bs, _), _ = run_mlp(mlp, n)
        partial = [relu(x @ a) @ b for a, b in zip(As, Bs)]
        y = np.concatenate(right["y"])
        own = [relu(p @ a) @ b for p, a, b in zip(np.split(x, n), As, Bs)]
        same(got[0], right["y"], f"y on {n} ranks", {
            "all tokens on every rank: the numbers are right, but nothing is saved. Each rank "
            "keeps its own tokens": [y] * n,
            "a rank's rows of its own product are partial sums: where is the reduce?":
                rows(partial),
            "of its own tokens by its own part of the matrices: the tokens have to be gathered":
                own,
            "this is the mean of the partial sums": [p / n for p in right["y"]],
        }, by="rank")  # fmt: skip


def check_mlp_input_gradient(mlp):
    for n in SIZES:
        got, right, (x, _, As, Bs, dys), _ = run_mlp(mlp, n)
        dy = np.concatenate(dys)
        dh = [dy @ b.T * (x @ a > 0) for a, b in zip(As, Bs)]
        kept = [np.split(x, n)[r] @ As[r] > 0 for r in range(n)]
        alone = [p @ b.T * k @ a.T for p, b, k, a in zip(dys, Bs, kept, As)]
        same(got[1], right["dx"], f"dx on {n} ranks", {
            "a rank's slice of its own partial sum, the others' parts are lost: an all-gather's "
            "conjugate is a reduce-scatter": rows([d @ a.T for d, a in zip(dh, As)]),
            "of the rank's own tokens and weights alone: dy has to be gathered before, and dx "
            "reduced": alone,
            "all tokens on every rank: each keeps its own": [np.concatenate(right["dx"])] * n,
            "as many times too large as there are ranks": [n * p for p in right["dx"]],
            "this is the mean of the parts: they have to be summed": [
                p / n for p in right["dx"]],
        }, by="rank")  # fmt: skip


def check_mlp_weight_gradients(mlp):
    for n in SIZES:
        got, right, (x, xs, As, Bs, dys), _ = run_mlp(mlp, n)
        kept = [x @ a > 0 for a in As]
        own_dh = [p @ b.T * np.split(k, n)[r] for r, (p, b, k) in enumerate(zip(dys, Bs, kept))]
        own = {
            "da": [p.T @ d for p, d in zip(xs, own_dh)],
            "db": [relu(p @ a).T @ d for p, a, d in zip(xs, As, dys)],
        }
        for name, answer in zip(("da", "db"), got[2:]):
            good = right[name]
            same(answer, good, f"{name} on {n} ranks", {
                "of the rank's own tokens alone: its part of the weights has seen all tokens, so "
                "dy has to be gathered": own[name],
                "the sum over ranks: a part's gradient is its rank's own": [sum(good)] * n,
                "as many times too large as there are ranks": [n * g for g in good],
                "divided by the number of ranks: nothing is averaged here": [g / n for g in good],
            }, by="rank")  # fmt: skip


def check_mlp_sends_activations_only(mlp):
    for n in SIZES:
        *_, mesh = run_mlp(mlp, n)
        not_more_than(
            sent(mesh), 5 * (n - 1) * 8 * N * D, f"bytes sent by all of {n} ranks",
            "an all-gather and a reduce-scatter of [n, d] in each direction, and perhaps x a "
            "second time, will do",
        )  # fmt: skip
        not_more_than(
            max(device.matmul_flops for device in mesh.devices), 8 * 2 * N * D * F // n,
            f"FLOPs of a rank of {n}", "a rank multiplies by its own parts of A and B alone",
        )  # fmt: skip


# enter and leave


def pair(function, tp):
    found = function(tp)
    if not (isinstance(found, Pair) and callable(found.forward) and callable(found.backward)):
        raise AssertionError(f"expected a layers.Pair of two functions, got {brief(found)}")
    return found


def gathers(function, way):
    for n, dp in [*[(n, 1) for n in SIZES], (3, 2)]:
        xs, mesh = [draw(2, 5, seed=i) for i in range(dp * n)], Mesh(dp=dp, tp=n)
        got = on_ranks(lambda rank, x: getattr(pair(function, rank.tp), way)(x), mesh, xs)
        groups = [xs[i : i + n] for i in range(0, dp * n, n)]
        what = f"{function.__name__}.{way} on {n} ranks"
        same(got, sum([[np.concatenate(g)] * n for g in groups], []), what, {
            "a rank's own tokens: all are needed": xs,
            "ranks have different tokens, and these are added up": sum(
                [[sum(g)] * n for g in groups], []),
            "each rank's tokens, over and over": [np.concatenate([x] * n) for x in xs],
            "joined side by side: tokens are axis 0": sum(
                [[np.concatenate(g, axis=1)] * n for g in groups], []),
            "the right tokens, as many times too large as there are ranks": sum(
                [[n * np.concatenate(g)] * n for g in groups], []),
            "divided by the number of ranks": sum(
                [[np.concatenate(g) / n] * n for g in groups], []),
        }, by="rank")  # fmt: skip
        not_more_than(sent(mesh), dp * (n - 1) * n * 8 * 2 * 5, f"bytes sent by {what}",
                      "one all-gather will do")  # fmt: skip


def scatters(function, way):
    for n, dp in [*[(n, 1) for n in SIZES], (3, 2)]:
        xs, mesh = [draw(2 * n, 5, seed=i) for i in range(dp * n)], Mesh(dp=dp, tp=n)
        got = on_ranks(lambda rank, x: getattr(pair(function, rank.tp), way)(x), mesh, xs)
        groups = [xs[i : i + n] for i in range(0, dp * n, n)]
        right = sum([np.split(sum(g), n) for g in groups], [])
        what = f"{function.__name__}.{way} on {n} ranks"
        same(got, right, what, {
            "a rank's slice of its own array, the others' terms are lost: where is the reduce?":
                sum([rows(g) for g in groups], []),
            "all tokens on every rank: where is the scatter?": sum(
                [[sum(g)] * n for g in groups], []),
            "this is the mean over ranks: they have to be summed": [x / n for x in right],
            "nothing has happened to it": xs,
            "rank 0 has the first tokens: these are in another order": sum(
                [np.split(sum(g), n)[::-1] for g in groups], []),
        }, by="rank")  # fmt: skip
        not_more_than(sent(mesh), dp * (n - 1) * 8 * 2 * n * 5, f"bytes sent by {what}",
                      "one reduce-scatter will do: half of what an all-reduce sends")  # fmt: skip


def check_entering_gathers_tokens(enter):
    gathers(enter, "forward")


def check_entering_backward_sums_and_scatters(enter):
    scatters(enter, "backward")


def check_leaving_sums_and_scatters(leave):
    scatters(leave, "forward")


def check_leaving_backward_gathers_tokens(leave):
    gathers(leave, "backward")


# A block on ranks

S, WIDTH, N_HEAD = 6, 12, 12  # one number a head, so that many group sizes divide


def block_params():
    def linear(d_in, d_out):
        return {"w": draw(d_in, d_out) / 4, "b": draw(d_out)}

    def norm(seed):
        return {"g": draw(WIDTH, seed=seed), "b": draw(WIDTH, seed=seed + 1)}

    return {
        "ln_1": norm(1),
        "attn": {"c_attn": linear(WIDTH, 3 * WIDTH), "c_proj": linear(WIDTH, WIDTH)},
        "ln_2": norm(3),
        "mlp": {"c_fc": linear(WIDTH, 4 * WIDTH), "c_proj": linear(4 * WIDTH, WIDTH)},
    }


def run_block(enter, leave, n, then=lambda grads, tp: grads):
    """y, dx and {published name: gradient} of a block, of one device and by rank."""
    p, x, dy = block_params(), draw(2 * S, WIDTH), draw(2 * S, WIDTH, seed=1)
    y, back = layers.block(x, p, attention_mask(S, S, x), N_HEAD)
    dx, grads = back(dy)

    def program(rank, x, p, dy):
        f, g = pair(enter, rank.tp), pair(leave, rank.tp)
        y, back = layers.block(x, p, attention_mask(S, S, x), N_HEAD // rank.tp.size, f, g)
        dx, grads = back(dy)
        return y, dx, then(flatten(grads, "h.0."), rank.tp)

    got = on_ranks(program, Mesh(tp=n), np.split(x, n), parts_of_block(p, n), np.split(dy, n))
    parts = [flatten(part, "h.0.") for part in parts_of_block(grads, n)]
    return got, list(zip(np.split(y, n), np.split(dx, n), parts))


def check_a_block_is_one_devices(leave, enter):
    for n in SIZES:
        got, right = run_block(enter, leave, n)
        for i in range(n):
            same(got[i][0], right[i][0], f"y of a block's tokens on rank {i} of {n}")
            same(got[i][1], right[i][1], f"dx of a block's tokens on rank {i} of {n}")
            for name in ("h.0.attn.c_attn.weight", "h.0.mlp.c_proj.weight"):
                same(got[i][2][name], right[i][2][name], f"gradient of {name}, rank {i} of {n}")


# reduce_partial

SHAPES = {  # of gradients on a rank, and whether the array is split; no two sizes are alike
    "h.3.ln_1.weight": ((5,), False), "h.3.ln_1.bias": ((5,), False),
    "h.3.attn.c_attn.weight": ((5, 6), True), "h.3.attn.c_attn.bias": ((6,), True),
    "h.3.attn.c_proj.weight": ((2, 5), True), "h.3.attn.c_proj.bias": ((5,), False),
    "h.11.ln_2.weight": ((7,), False), "h.11.ln_2.bias": ((7,), False),
    "h.11.mlp.c_fc.weight": ((5, 8), True), "h.11.mlp.c_fc.bias": ((8,), True),
    "h.11.mlp.c_proj.weight": ((8, 5), True), "h.11.mlp.c_proj.bias": ((9,), False),
    "wte.weight": ((11, 5), True), "wpe.weight": ((4, 5), False),
    "ln_f.weight": ((3,), False), "ln_f.bias": ((3,), False),
}  # fmt: skip


def reduced(reduce_partial, n, names, dtype=np.float64):
    """Run it on gradients of these names, and refuse wrong ones; the mesh has the meters."""
    gradients = [
        {name: (1 + draw(*SHAPES[name][0], seed=10 * i + len(name))).astype(dtype)
         for name in names} for i in range(n)
    ]  # fmt: skip
    mesh = Mesh(tp=n)

    def program(rank, grads):
        answer = reduce_partial(grads, rank.tp)
        if not isinstance(answer, dict):
            raise AssertionError(f"expected a dict of gradients, got {brief(answer)}")
        return {name: answer[name] for name in sorted(answer)}

    got = on_ranks(program, mesh, gradients)
    for i in range(n):
        what = f"the names on rank {i} of {n}"
        same(list(got[i]), sorted(names), what, {"some gradients have got lost": list(
            name for name in sorted(names) if not SHAPES[name][1])})  # fmt: skip
    for name in names:
        answer, own = [g[name] for g in got], [g[name] for g in gradients]
        total = sum(own)
        if SHAPES[name][1]:
            same(answer, own, f"{name} on {n} ranks", {
                "it is split: ranks have the gradients of different parts, which must not be "
                "added up": [total] * n,
                "it is split, and its gradient is complete: nothing is averaged":
                    [g / n for g in own],
            }, by="rank")  # fmt: skip
        else:
            same(answer, [total] * n, f"{name} on {n} ranks", {
                "each rank has only its own tokens' part: copies of one parameter will drift "
                "apart": own,
                "the mean over ranks: other tokens are further terms of a sum, so it is this many "
                "times too small": [total / n] * n,
                "only rank 0 has the sum": [total, *own[1:]],
            }, by="rank")  # fmt: skip
    return mesh


def check_norms_are_summed(reduce_partial):
    for n in SIZES:
        reduced(reduce_partial, n, [name for name in SHAPES if "ln_" in name])


def check_all_that_is_whole_is_summed(reduce_partial):
    for n in SIZES:
        reduced(reduce_partial, n, [name for name in SHAPES if not SHAPES[name][1]])


def check_what_is_split_stays(reduce_partial):
    for n in SIZES:
        names = [name for name in SHAPES if SHAPES[name][1]]
        mesh = reduced(reduce_partial, n, names)
        not_more_than(sent(mesh), 0, f"bytes sent on {n} ranks, all arrays split",
                      "there is nothing to reduce")  # fmt: skip
        reduced(reduce_partial, n, list(SHAPES))
        reduced(reduce_partial, n, list(SHAPES)[::-1])


def check_nothing_to_reduce(reduce_partial):
    for n in SIZES:
        reduced(reduce_partial, n, [])


def check_gradients_float32(reduce_partial):
    reduced(reduce_partial, 3, list(SHAPES), np.float32)


def check_bytes_of_the_reduction(reduce_partial):
    for n in SIZES:
        mesh = reduced(reduce_partial, n, list(SHAPES))
        size = 8 * sum(int(np.prod(shape)) for shape, split in SHAPES.values() if not split)
        not_more_than(sent(mesh), 2 * (n - 1) * size, f"bytes sent by all of {n} ranks",
                      "one all-reduce of what is whole will do")  # fmt: skip


def check_a_blocks_gradients_are_one_devices(reduce_partial, enter, leave):
    for n in SIZES:
        got, right = run_block(enter, leave, n, reduce_partial)
        for i in range(n):
            same(got[i][2], right[i][2], f"gradients of a block on rank {i} of {n}")


# activation_bytes

LEDGER = [  # arrays that a block holds: how often sbh bytes, and whether tp splits it
    (2, False), (2, False), (6, True), (2, True), (1, False),  # attention, mask of its dropout
    (2, False), (2, False), (8, True), (8, True), (1, False),  # MLP, mask of its dropout
]  # fmt: skip


def bytes_by_ledger(s, b, h, a, t=1, sp=False, recompute="none", ledger=LEDGER, scores=5):
    if recompute == "full":
        ledger, scores = [(2, False)], 0
    held = sum(size * s * b * h / (t if split or sp else 1) for size, split in ledger)
    return held + (scores * a * s * s * b / t if recompute == "none" else 0)


TINY, B22 = (2, 1, 4, 2), (2048, 4, 6144, 64)  # s, b, h, a: a tiny one, a block of the 22B model


def judged(activation_bytes, shape, *how):
    got = activation_bytes(*shape, *how)
    t, sp, recompute = [*how, *(1, False, "none")[len(how) :]]
    right = bytes_by_ledger(*shape, *how)
    s, b, h, a = shape
    everything = [(size, True) for size, _ in LEDGER]
    without = [(size, split) for size, split in LEDGER if size != 1]
    scores = 5 * a * s * s * b * (recompute == "none")
    mistakes = {}
    if recompute == "full" and sp:
        hint = "sequence parallelism splits the block's input, too: 2sbh/tp are held, not 2sbh"
        mistakes[hint] = 2 * s * b * h
    mistakes |= {
        "the formula is in bytes already, masks at 1 byte": 2 * right,
        "tensor parallelism alone does not divide it all: 10sbh are whole on every rank":
            bytes_by_ledger(*shape, t, False, recompute, everything),
        "the block's input is whole on every rank, but for sequence parallelism": right / t,
        "sequence parallelism divides what is whole on every rank, too":
            bytes_by_ledger(*shape, t, False, recompute),
        "scores belong to heads, and heads are split: 5as²b is divided by tp":
            right - scores / t + scores,
        "selective recomputation drops the scores, 5as²b, nothing else":
            right - 11 * s * b * h / t,
        "the tokens outside of the split layers are divided by sequence parallelism only":
            bytes_by_ledger(*shape, t, True, recompute),
        "selective recomputation drops 5as²b":
            bytes_by_ledger(*shape, t, sp, "none"),
        "full recomputation holds the block's input, to begin again: 2sbh bytes": 0,
        "an element has 2 bytes": right / 2,
        "masks of dropout take a byte each": bytes_by_ledger(
            *shape, t, sp, recompute, without, 2),
    }  # fmt: skip
    how = f"tp {t}, {'with' if sp else 'no'} sequence parallelism, recompute {recompute}"
    same(got, right, f"bytes for s, b, h, a = {shape}, {how}", mistakes)


def check_bytes_on_one_rank(activation_bytes):
    for shape in (TINY, B22, (6, 5, 24, 4)):
        judged(activation_bytes, shape)
        judged(activation_bytes, shape, 1, True)


def check_bytes_with_tensor_parallelism(activation_bytes):
    judged(activation_bytes, TINY, 2)
    judged(activation_bytes, B22, 8)
    judged(activation_bytes, (6, 5, 36, 3), 3)


def check_bytes_with_sequence_parallelism(activation_bytes):
    for shape, t in ((TINY, 2), (B22, 8), ((6, 5, 36, 3), 3)):
        judged(activation_bytes, shape, t, True)


def check_bytes_with_selective_recomputation(activation_bytes):
    for t in (1, 2, 8):
        judged(activation_bytes, B22, t, False, "selective")
        judged(activation_bytes, B22, t, True, "selective")


def check_bytes_with_full_recomputation(activation_bytes):
    for t in (1, 2, 8):
        judged(activation_bytes, B22, t, False, "full")
        judged(activation_bytes, B22, t, True, "full")


# merge_attention


def attention(scores, values):  # [q, k], [k, e] -> [q, e], [q]; hidden keys have scores of -inf
    out, lse = np.zeros((len(scores), values.shape[1])), np.full(len(scores), -np.inf)
    for i, row in enumerate(scores):
        if row.max() > -np.inf:
            e = np.exp(row - row.max())
            out[i], lse[i] = e @ values / e.sum(), row.max() + np.log(e.sum())
    return out, lse


def merged(merge_attention, first, second, right, what):
    with unchanged(*first, *second):
        got = merge_attention(*first, *second)
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise AssertionError(f"expected (out, lse), got {brief(got)}")
    for name, x in zip(("out", "lse"), got):
        if isinstance(x, np.ndarray) and np.isnan(x).any():
            raise AssertionError(
                f"{name}, {what}: {np.isnan(x).sum()} of {x.size} numbers are nan: is an "
                "exponential too large, or is -inf subtracted from -inf, or are all of a query's "
                "0, because the largest lse of all queries was subtracted, and not its own?"
            )
    (out1, lse1), (out2, lse2) = first, second
    with np.errstate(all="ignore"):
        share = np.exp(lse1 - right[1])[..., None], np.exp(lse2 - right[1])[..., None]
        by_lse = (out1 * lse1[..., None] + out2 * lse2[..., None]) / (lse1 + lse2)[..., None]
        largest = np.maximum(lse1, lse2)
        same(got[0], right[0], f"out, {what}", {
            "half of each: a block weighs exp(lse)": (out1 + out2) / 2,
            "the two added up: each has weights that sum to 1 already, so they have to be weighed "
            "against each other": out1 + out2,
            "weighed by lse: a block weighs exp(lse)": by_lse,
            "the weights are exchanged": out1 * share[1] + out2 * share[0],
            "divided by the sum of lses instead of by all exponentials":
                (out1 * np.exp(lse1)[..., None] + out2 * np.exp(lse2)[..., None])
                / np.exp(lse1 + lse2)[..., None],
        })  # fmt: skip
        same(got[1], right[1], f"lse, {what}", {
            "logarithms of sums are not added: log(exp(lse1) + exp(lse2))": lse1 + lse2,
            "the larger one of both": largest,
            "the mean of both": (lse1 + lse2) / 2,
            "one of both: it has to be that of all keys, for the next merge": lse1,
            "that is the sum of exponentials: where is the logarithm?": np.exp(right[1]),
        })  # fmt: skip


def blocks_of_keys(cut, shift=0.0, dtype=np.float64):
    scores, values = 2 * draw(7, 9) + shift, draw(9, 4, seed=1)  # [q, k], [k, e]
    both = attention(scores, values)
    first = attention(scores[:, :cut], values[:cut])
    second = attention(scores[:, cut:], values[cut:])
    return [tuple(x.astype(dtype) for x in pair) for pair in (first, second, both)]


def check_two_blocks_of_keys(merge_attention):
    one, two = (np.array([[4.0]]), np.zeros(1)), (np.array([[8.0]]), np.log([3.0]))
    right = np.array([[7.0]]), np.log([4.0])
    for cut in (1, 3, 4, 8):
        first, second, both = blocks_of_keys(cut)
        merged(merge_attention, first, second, both, f"{cut} and {9 - cut} keys")
        merged(merge_attention, second, first, both, f"{9 - cut} and {cut} keys")
    merged(merge_attention, one, two, right, "scores 0 and log 3, values 4 and 8")


def check_heads_and_batches(merge_attention):
    pairs = [blocks_of_keys(cut) for cut in (2, 5, 7)]
    first, second, both = [
        tuple(np.stack([p[i][j] for p in pairs])[None] for j in (0, 1)) for i in range(3)
    ]
    merged(merge_attention, first, second, both, "out [1, 3, 7, 4]")


def check_large_scores(merge_attention):
    for shift in (1000.0, -1000.0):
        first, second, both = blocks_of_keys(4, shift)
        merged(merge_attention, first, second, both, f"scores of about {shift:g}")
    first, second, both = blocks_of_keys(4, 1000.0 * np.arange(7)[:, None])
    merged(merge_attention, first, second, both, "scores of about 0 to 6000, by query")
    far = (draw(7, 4), draw(7) + 800), (draw(7, 4, seed=1), draw(7) - 800)
    merged(merge_attention, *far, far[0], "lse 1600 apart")
    merged(merge_attention, *far[::-1], far[0], "lse 1600 apart, the other way round")


def check_hidden_blocks(merge_attention):
    scores, values = np.where(np.tri(7, 9, 1), draw(7, 9), -np.inf), draw(9, 4, seed=1)
    both = attention(scores, values)
    for cut in (1, 4, 7):
        first = attention(scores[:, :cut], values[:cut])
        second = attention(scores[:, cut:], values[cut:])
        merged(merge_attention, first, second, both, f"later keys hidden, the first {cut} apart")
        merged(merge_attention, second, first, both, f"later keys hidden, the first {cut} last")


def check_many_blocks(merge_attention):
    scores, values = 3 * draw(7, 9), draw(9, 4, seed=1)
    parts = [attention(scores[:, i : i + 2], values[i : i + 2]) for i in range(0, 9, 2)]
    out, lse = parts[0]
    for part in parts[1:]:
        got = merge_attention(out, lse, *part)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise AssertionError(f"expected (out, lse), got {brief(got)}")
        out, lse = got
    same([out, lse], list(attention(scores, values)), "five blocks, merged one after another")


def check_merged_float32(merge_attention):
    first, second, both = blocks_of_keys(4, dtype=np.float32)
    merged(merge_attention, first, second, both, "float32")
