"""The checks of lesson 8. Their oracles are of one device, or loops."""

import numpy as np

from gpt_numpy import layers
from gpt_numpy.gpt2 import attention_mask
from gpt_numpy.layers import Pair
from gpt_numpy.mesh import Mesh
from lessons.checking import SIZES, brief, on_ranks, parts_of_block, same, unchanged


def draw(*shape, seed=0):  # no two alike, and none of them 0
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def sum_of(parts):
    return [sum(parts)] * len(parts)


def sent(mesh):
    return sum(device.sent["tp"] for device in mesh.devices)


def not_more_than(got, limit, what, hint):
    if got > limit:
        raise AssertionError(f"{what}: {got:,}, expected {limit:,} at most: {hint}")


# row_parallel_linear

NO_SUM = (
    "where is the all-reduce, or its result? tp.all_reduce(x) returns the sum and leaves x alone"
)


def linear_by_rows(row_parallel_linear, n, bias=True, dtype=np.float64):
    x, w, b = [a.astype(dtype) for a in (draw(3, 24), draw(24, 5), draw(5) * bias)]
    xs, ws = np.split(x, n, axis=1), np.split(w, n)  # [3, 24/n], [24/n, 5]
    mesh = Mesh(tp=n)
    got = on_ranks(lambda rank, *a: row_parallel_linear(*a, rank.tp), mesh, xs, ws, [b] * n)
    parts = [x @ w for x, w in zip(xs, ws)]
    y = sum(parts)
    same(got, [y + b] * n, f"x W + b on {n} ranks", {
        "every rank has added the bias before the sum, so it is in it once for each rank":
            [y + n * b] * n,
        f"these are partial sums: {NO_SUM}": [part + b for part in parts],
        f"these are partial sums, and without the bias: {NO_SUM}": parts,
        "only rank 0 has the sum: every rank needs it": [y + b, *[p + b for p in parts[1:]]],
        "only rank 0 has the bias": [y + b] + [y] * (n - 1),
        "where is the bias?": [y] * n,
        "this is the mean of the partial sums: they have to be summed": [y / n + b] * n,
    }, by="rank")  # fmt: skip
    return mesh


def check_row_parallel_product(row_parallel_linear):
    for n in SIZES:
        linear_by_rows(row_parallel_linear, n, bias=False)


def check_bias_is_added_once(row_parallel_linear):
    for n in SIZES:
        linear_by_rows(row_parallel_linear, n)


def check_float32_stays_float32(row_parallel_linear):
    linear_by_rows(row_parallel_linear, 3, dtype=np.float32)


def check_one_all_reduce_is_sent(row_parallel_linear):
    for n in SIZES:
        mesh = linear_by_rows(row_parallel_linear, n)
        not_more_than(
            sent(mesh), 2 * (n - 1) * 8 * 3 * 5, f"bytes sent by all of {n} ranks",
            "one all-reduce of y, [n, m], will do; x and W stay where they are",
        )  # fmt: skip


# mlp


def relu(x):
    return np.maximum(x, 0)


def run_mlp(mlp, n):
    """The answer, [y, dx, da, db] by rank; what is right; the inputs; the mesh."""
    x, a, b, dy = draw(5, 12), draw(12, 24), draw(24, 12), draw(5, 12, seed=1)
    parts = np.split(a, n, axis=1), np.split(b, n)  # [12, 24/n], [24/n, 12]
    mesh = Mesh(tp=n)

    def program(rank, *arrays):
        answer = mlp(*arrays, rank.tp)
        if not isinstance(answer, (tuple, list)) or len(answer) != 4:
            raise AssertionError(f"expected y, dx, da and db, got {brief(answer)}")
        return answer

    got = on_ranks(program, mesh, [x] * n, *parts, [dy] * n)
    h = x @ a
    dh = dy @ b.T * (h > 0)
    right = {
        "y": [relu(h) @ b] * n, "dx": [dh @ a.T] * n,
        "da": np.split(x.T @ dh, n, axis=1), "db": np.split(relu(h).T @ dy, n),
    }  # fmt: skip
    return [list(values) for values in zip(*got)], right, (x, a, b, dy), mesh


def check_mlp_forward(mlp):
    for n in SIZES:
        got, right, (x, a, b, _), _ = run_mlp(mlp, n)
        halves = [relu(x @ p) @ q for p, q in zip(np.split(a, n, axis=1), np.split(b, n))]
        by_rows = sum(relu(p @ q) for p, q in zip(np.split(x, n, axis=1), np.split(a, n)))
        h = sum(x @ p for p in np.split(a, n, axis=1))  # of different hidden units
        early = [relu(h) @ q for q in np.split(b, n)]
        h_summed = (
            "h was summed over the ranks before relu, but each rank's h are other hidden units, "
            "and whole: only y is a partial sum"
        )
        same(got[0], right["y"], f"y on {n} ranks", {
            f"these are partial sums: {NO_SUM}": halves,
            h_summed: sum_of(early),
            f"{h_summed}; and it is one still": early,
            "without relu between the products": [x @ a @ b] * n,
            "relu of partial sums, summed, is not relu of the sum": [by_rows @ b] * n,
            "this is the mean of the partial sums": [right["y"][0] / n] * n,
        }, by="rank")  # fmt: skip


NO_SLOPE = "where is relu's slope? The gradient of h is (dy B^T) * (h > 0)"


def check_mlp_input_gradient(mlp):
    for n in SIZES:
        got, right, (x, a, b, dy), _ = run_mlp(mlp, n)
        dh = dy @ b.T * (x @ a > 0)
        parts = [p @ q.T for p, q in zip(np.split(dh, n, axis=1), np.split(a, n, axis=1))]
        dx = right["dx"][0]
        no_slope = [(dy @ q.T) @ p.T for p, q in zip(np.split(a, n, axis=1), np.split(b, n))]
        same(got[1], right["dx"], f"dx on {n} ranks", {
            "each rank has only its own columns' part of it: the backward pass has an all-reduce, "
            "too": parts,
            "it is as many times too large as there are ranks: dy is whole already, and must not "
            "be summed": [n * dx] * n,
            "this is the mean of the ranks' parts: they have to be summed": [dx / n] * n,
            NO_SLOPE: sum_of(no_slope),
            f"{NO_SLOPE}; and only a rank's own part of the sum": no_slope,
        }, by="rank")  # fmt: skip


def check_mlp_weight_gradients(mlp):
    for n in SIZES:
        got, right, (x, a, b, dy), _ = run_mlp(mlp, n)
        others = {
            "da": {NO_SLOPE: np.split(x.T @ (dy @ b.T), n, axis=1)},
            "db": {"B is multiplied by relu(h), not by h: so its gradient is relu(h)^T dy":
                   np.split((x @ a).T @ dy, n)},
        }  # fmt: skip
        for name, answer in zip(("da", "db"), got[2:]):
            good = right[name]
            same(answer, good, f"{name} on {n} ranks", {
                "it is as many times too large as there are ranks: dy is whole already, and must "
                "not be summed": [n * g for g in good],
                "divided by the number of ranks: nothing is averaged here": [g / n for g in good],
                "these are the gradients of all ranks' parts: a part's gradient is its rank's own":
                    [sum(good)] * n,
                **others[name],
            }, by="rank")  # fmt: skip


def check_mlp_sends_two_all_reduces(mlp):
    for n in SIZES:
        *_, mesh = run_mlp(mlp, n)
        not_more_than(
            sent(mesh), 2 * 2 * (n - 1) * 8 * 5 * 12, f"bytes sent by all of {n} ranks",
            "one all-reduce of [n, d] forward and one backward will do; weights stay where they "
            "are, and so do their gradients",
        )  # fmt: skip
        not_more_than(
            max(device.matmul_flops for device in mesh.devices), 8 * 2 * 5 * 12 * 24 // n,
            f"FLOPs of a rank of {n}", "a rank multiplies by its own parts of A and B alone",
        )  # fmt: skip


# enter and leave


def pair(function, tp):
    found = function(tp)
    if not (isinstance(found, Pair) and callable(found.forward) and callable(found.backward)):
        odd = [half for half in Pair._fields if not callable(getattr(found, half, None))]
        raise AssertionError(
            f"expected a layers.Pair of two functions, got a {type(found).__name__} whose "
            f"{odd[0] if odd else 'type'} is none: where nothing happens it is a function, too, "
            "that returns what it gets (identity)"
        )
    return found


def talk(function, way, n, dp=1):
    """What a Pair's function gives on the ranks of a group; the groups' inputs; bytes sent."""
    xs = [draw(5, 3, seed=i) for i in range(dp * n)]
    mesh = Mesh(dp=dp, tp=n)
    got = on_ranks(lambda rank, x: getattr(pair(function, rank.tp), way)(x), mesh, xs)
    groups = [xs[i : i + n] for i in range(0, dp * n, n)]
    return got, groups, sent(mesh)


def nothing(function, way, hint):
    for n, dp in [*[(n, 1) for n in SIZES], (3, 2)]:
        got, groups, nbytes = talk(function, way, n, dp)
        same(got, sum(groups, []), f"{function.__name__}.{way} on {n} ranks", {
            f"this is the sum over the ranks, but {hint}": sum(map(sum_of, groups), []),
            f"this is the mean over the ranks, but {hint}":
                sum([[x / n for x in sum_of(xs)] for xs in groups], []),
            f"divided by the number of ranks, but {hint}": [x / n for x in sum(groups, [])],
            "this is rank 0's: each rank keeps its own": sum([xs[:1] * n for xs in groups], []),
        }, by="rank")  # fmt: skip
        what = f"bytes sent by {function.__name__}.{way} on {n} ranks"
        not_more_than(nbytes, 0, what, f"nothing has to be sent: {hint}")


def summed(function, way, hint):
    for n, dp in [*[(n, 1) for n in SIZES], (3, 2)]:
        got, groups, nbytes = talk(function, way, n, dp)
        what = f"{function.__name__}.{way} on {n} ranks"
        same(got, sum(map(sum_of, groups), []), what, {
            f"each rank keeps its own, but {hint}": sum(groups, []),
            f"this is the mean over the ranks, but {hint}: sum them":
                sum([[x / n for x in sum_of(xs)] for xs in groups], []),
            "only rank 0 has the sum: every rank needs it":
                sum([[sum(xs), *xs[1:]] for xs in groups], []),
        }, by="rank")  # fmt: skip
        not_more_than(nbytes, dp * 2 * (n - 1) * 8 * 5 * 3, f"bytes sent by {what}",
                      "one all-reduce will do")  # fmt: skip


def check_f_forward_is_nothing(enter):
    nothing(enter, "forward", "x is whole on every rank already")


def check_f_backward_is_a_sum(enter):
    summed(enter, "backward", "each has a part of the gradient only")


def check_g_forward_is_a_sum(leave):
    summed(leave, "forward", "each has a partial sum of y only")


def check_g_backward_is_nothing(leave):
    nothing(leave, "backward", "the gradient of y is whole on every rank, and no partial sum")


S, D, N_HEAD = 3, 12, 12  # one number a head, so that many group sizes divide


def block_params():
    def linear(d_in, d_out):
        return {"w": draw(d_in, d_out) / 4, "b": draw(d_out)}

    def norm(seed):
        return {"g": draw(D, seed=seed), "b": draw(D, seed=seed + 1)}

    return {
        "ln_1": norm(1), "attn": {"c_attn": linear(D, 3 * D), "c_proj": linear(D, D)},
        "ln_2": norm(3), "mlp": {"c_fc": linear(D, 4 * D), "c_proj": linear(4 * D, D)},
    }  # fmt: skip


def check_a_block_is_one_devices(leave, enter):
    p, x, dy = block_params(), draw(2 * S, D), draw(2 * S, D, seed=1)
    y, back = layers.block(x, p, attention_mask(S, S, x), N_HEAD)
    dx, grads = back(dy)

    def program(rank, x, p, dy):
        f, g = pair(enter, rank.tp), pair(leave, rank.tp)
        mask = attention_mask(S, S, x)
        y, back = layers.block(x, p, mask, N_HEAD // rank.tp.size, f, g)
        return y, *back(dy)

    for n in SIZES:
        got = on_ranks(program, Mesh(tp=n), [x] * n, parts_of_block(p, n), [dy] * n)
        for i, parts in enumerate(parts_of_block(grads, n)):
            for what, answer, right in zip(("y", "dx", "gradients"), got[i], (y, dx, parts)):
                same(answer, right, f"{what} of a block on rank {i} of {n}")


# split


def cut(split, name, x, tp):
    with unchanged(x):
        return split(name, x, tp)


def table(*shape):  # a number that tells where it stands
    return np.arange(float(np.prod(shape))).reshape(shape)


def check_qkv_by_heads(split):
    for d, tp in [(4, 2), (6, 3), (12, 4), (8, 2), (12, 1)]:
        e = d // tp
        for name, x in [("h.0.attn.c_attn.weight", table(d, 3 * d)),
                        ("h.11.attn.c_attn.bias", table(3 * d))]:  # fmt: skip
            columns = [
                [which * d + r * e + i for which in range(3) for i in range(e)] for r in range(tp)
            ]
            same(cut(split, name, x, tp), [x[..., c] for c in columns], f"{name}, tp = {tp}", {
                "that cuts [q | k | v] as if it were one matrix: rank 0 then has mostly "
                "queries. Cut each of the three": np.split(x, tp, axis=-1),
                "every tp-th column is a piece of every head: a rank has whole heads, next to "
                "each other": [x[..., r::tp] for r in range(tp)],
                "every tp-th column of q, k and v is a piece of every head: a rank has whole "
                "heads, next to each other":
                    [x[..., [w * d + i for w in range(3) for i in range(r, d, tp)]]
                     for r in range(tp)],
                "that takes q, k and v to alternate from column to column: here it is all of q, "
                "then all of k, then all of v":
                    [x[..., [3 * i + w for w in range(3) for i in range(r * e, r * e + e)]]
                     for r in range(tp)],
                "rank 0 has the first heads: these are in another order":
                    [x[..., c] for c in columns[::-1]],
            }, by="rank")  # fmt: skip


def check_hidden_units_by_columns(split):
    for d, tp in [(2, 2), (3, 3), (5, 4), (3, 1)]:
        for name, x in [("h.2.mlp.c_fc.weight", table(d, 4 * tp * d)),
                        ("h.10.mlp.c_fc.bias", table(4 * tp * d))]:  # fmt: skip
            f = 4 * d
            right = [x[..., r * f : r * f + f] for r in range(tp)]
            same(cut(split, name, x, tp), right, f"{name}, tp = {tp}", {
                "the whole of it: c_fc is split": [x] * tp,
                "every tp-th column: rank 0 has the first ones": [
                    x[..., r::tp] for r in range(tp)],
            }, by="rank")  # fmt: skip


def check_last_matrices_by_rows(split):
    for e, m, tp in [(2, 4, 2), (3, 12, 3), (5, 8, 4), (3, 7, 1)]:
        for name in ("h.0.attn.c_proj.weight", "h.12.mlp.c_proj.weight"):
            x = table(e * tp, m)
            right = [x[r * e : r * e + e] for r in range(tp)]
            columns = [x[:, r * m // tp : (r + 1) * m // tp] for r in range(tp)]
            same(cut(split, name, x, tp), right, f"{name}, tp = {tp}", {
                "these are columns: what comes in is split, so the rows are": columns,
                "the whole of it: c_proj's weight is split": [x] * tp,
                "every tp-th row: rank 0 has the first ones": [x[r::tp] for r in range(tp)],
            }, by="rank")  # fmt: skip


def check_vocabulary_by_padded_rows(split):
    for v, tp in [(7, 2), (7, 3), (10, 4), (8, 4), (5, 1)]:
        x = table(v, 12) + 1
        rows = -(-v // tp)
        padded = np.zeros((rows * tp, 12))
        padded[:v] = x
        right = [padded[r * rows : r * rows + rows] for r in range(tp)]
        what = f"wte.weight, {v} tokens, tp = {tp}"
        try:
            got = cut(split, "wte.weight", x, tp)
        except ValueError as error:
            advice = "add rows of zeros at the end until v divides by tp, then cut"
            raise AssertionError(f"{what}: {error}: {advice}") from error
        same(got, right, what, {
            "ranks have different numbers of rows: add rows of zeros until v divides":
                np.array_split(x, tp),
            "these are columns: the vocabulary is split": np.split(x, tp, axis=1),
            "the whole of it: the vocabulary is split": [x] * tp,
            "every tp-th row: rank 0 has the first tokens": [padded[r::tp] for r in range(tp)],
        }, by="rank")  # fmt: skip


def check_the_rest_is_whole(split):
    shapes = {
        "h.0.ln_1.weight": 12, "h.0.ln_1.bias": 12, "h.3.ln_2.weight": 12, "h.3.ln_2.bias": 12,
        "h.0.attn.c_proj.bias": 12, "h.11.mlp.c_proj.bias": 12, "ln_f.weight": 12,
        "ln_f.bias": 12, "wpe.weight": (24, 12),
    }  # fmt: skip
    for name, shape in shapes.items():
        for tp in SIZES:
            x = 1 + table(*np.atleast_1d(shape)).astype(np.float32)
            same(cut(split, name, x, tp), [x] * tp, f"{name}, tp = {tp}", {
                "it is used after the sum, where every rank needs all of it": np.split(x, tp),
                "divided by the number of ranks: it is added once, after the sum": [x / tp] * tp,
                "only rank 0 has it": [x] + [np.zeros_like(x)] * (tp - 1),
            }, by="rank")  # fmt: skip


def check_all_parts_together_are_the_whole(split):
    """A kind of test that says little, but sees a row that is lost or there twice."""
    for name, x in [("h.5.attn.c_attn.weight", table(12, 36)), ("h.5.mlp.c_fc.bias", table(48)),
                    ("h.5.mlp.c_proj.weight", table(48, 12))]:  # fmt: skip
        parts = cut(split, name, x.astype(np.float32), 3)
        if not isinstance(parts, (list, tuple)):
            raise AssertionError(f"{name}: expected a list of 3 arrays, got {brief(parts)}")
        numbers = np.sort(np.concatenate([np.ravel(part) for part in parts]))
        same(numbers, np.arange(x.size, dtype=np.float32), f"all numbers of {name}, tp = 3")


# cross_entropy


def loss_by_loop(logits, targets, total):  # [n, v], [n] -> loss, dlogits [n, v]; float64
    logits, losses, grads = logits.astype(np.float64), 0.0, []
    for row, target in zip(logits, targets):
        e = np.exp(row - row.max())
        grads.append(e / e.sum() if target >= 0 else 0 * e)
        if target >= 0:
            losses += np.log(e.sum()) + row.max() - row[target]
            grads[-1][target] -= 1
    return losses / total, np.array(grads) / total


def answer(cross_entropy, tp, logits, targets, total, n_vocab):
    found = cross_entropy(logits, targets, total, tp, n_vocab)
    if not isinstance(found, (tuple, list)) or len(found) != 2 or not callable(found[1]):
        raise AssertionError(f"expected a loss and the function back, got {brief(found)}")
    return found


def split_loss(cross_entropy, n, logits, targets, total=1, dloss=1.0, padding=-1.5):
    """Losses and dlogits by rank, and the mesh."""
    n_vocab = logits.shape[1]
    extra = np.full((len(logits), -n_vocab % n), padding)
    parts = np.split(np.concatenate([logits, extra], axis=1), n, axis=1)  # n times [n, v/tp]
    mesh = Mesh(tp=n)

    def program(rank, mine, targets):
        before = targets.numpy()
        loss, back = answer(cross_entropy, rank.tp, mine, targets, total, n_vocab)
        dlogits = back(dloss)
        same(targets.numpy(), before, "the targets, which others still need, were changed")
        return loss, dlogits

    got = on_ranks(program, mesh, parts, [np.array(targets)] * n, may_change=True)
    return [g[0] for g in got], [g[1] for g in got], mesh


def wrong_losses(logits, targets, total, n):
    """What misunderstandings give, by rank: {idea: losses}."""
    v = logits.shape[1]
    rows = -(-v // n)
    wide = np.concatenate([logits, np.full((len(logits), rows * n - v), -np.inf)], axis=1)
    parts = np.split(wide, n, axis=1)
    counted = np.array(targets) >= 0
    own = [np.maximum(p.max(axis=1), -1e30) for p in parts]  # of a rank with no tokens: not -inf
    top = np.max(own, axis=0)
    tokens = np.arange(len(targets))
    clipped = [np.clip(np.array(targets) - r * rows, 0, rows - 1) for r in range(n)]
    here = [(np.array(targets) // rows == r) & counted for r in range(n)]

    def loss(sums, picked):
        return np.asarray(np.where(counted, np.log(sums) - picked, 0).sum() / total)

    sums = sum(np.exp(p - top[:, None]).sum(axis=1) for p in parts)
    shifted = sum(np.exp(p - m[:, None]).sum(axis=1) for p, m in zip(parts, own))
    picks = [p[tokens, c] - top for p, c in zip(parts, clipped)]
    mine = [p[tokens, c] - m for p, c, m in zip(parts, clipped, own)]
    at_home = sum(np.where(h, pick, 0) for h, pick in zip(here, mine))
    picked = sum(np.where(h, pick, 0) for h, pick in zip(here, picks))
    local = [np.log(np.exp(p - m[:, None]).sum(axis=1)) - pick
             for p, m, pick in zip(parts, own, mine)]  # fmt: skip
    right = loss(sums, picked)
    return {
        "each rank has subtracted its own maximum: exponentials are added up over ranks, so all "
        "must subtract the same": [loss(shifted, at_home)] * n,
        "a softmax over a rank's own columns is none over all: reduce the maximum and the sum":
            [np.asarray(np.where(counted, sum(local) / n, 0).sum() / total)] * n,
        "ranks that do not have the target have added some other logit: they have to add 0":
            [loss(sums, sum(picks))] * n,
        "only the rank that has the target knows its logit: where is the all-reduce of it?":
            [loss(sums, np.where(h, pick, 0)) for h, pick in zip(here, picks)],
        "is an exponential too large for the dtype? Subtract the largest logit of all ranks":
            [np.asarray(np.nan)] * n,
        "divided by the number of targets: `total` says by what": [
            right * total / max(1, counted.sum())] * n,
        "this is the sum: divide it by `total`": [right * total] * n,
        "summed over the ranks, but all of them have the whole loss": [right * n] * n,
        "any negative target stands for none, not -1 alone": [
            right + np.log(sums)[np.array(targets) < -1].sum() / total] * n,
        "any negative target stands for none, not -100 alone": [
            right + np.log(sums)[~counted & (np.array(targets) != -100)].sum() / total] * n,
        "a target of -1 stands for no loss": [
            right + (np.log(sums) + top - logits[:, -1])[~counted].sum() / total] * n,
    }  # fmt: skip


def judged(cross_entropy, n, logits, targets, total=1, dloss=1.0, what=""):
    logits = np.asarray(logits, np.float64)
    losses, grads, mesh = split_loss(cross_entropy, n, logits, targets, total, dloss)
    loss, dlogits = loss_by_loop(logits, targets, total)
    what = f"{what}{n} rank{'s' * (n > 1)}"
    same(losses, [np.asarray(loss)] * n, f"loss, {what}", wrong_losses(logits, targets, total, n),
         by="rank")  # fmt: skip
    dlogits = np.concatenate([dlogits, np.zeros((len(logits), -logits.shape[1] % n))], axis=1)
    return grads, np.split(dloss * dlogits, n, axis=1), what, mesh


EASY = np.log([[1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]])  # probabilities: these, over 78


def check_loss_of_one_token(cross_entropy):
    for n in SIZES:
        for target in (0, 4, 11):
            judged(cross_entropy, n, EASY, [target], what=f"target {target} of 12, ")


def check_large_logits(cross_entropy):
    for n in SIZES:
        shift = np.repeat([[900.0], [-900.0], [0.0]], 12, axis=1)
        judged(cross_entropy, n, EASY + shift, [2, 7, 10], 3, what="logits of 900 and -900, ")
        steep = 400.0 * np.arange(12)[None, ::-1]  # whole ranks have nothing but tiny ones
        judged(cross_entropy, n, steep, [1], what="logits from 0 to 4400, ")


def check_tokens_without_a_target(cross_entropy):
    for n in SIZES:
        for targets in ([3, -1, 11, -1, 0], [3, -2, 11, -1, 0], [3, -100, 11, -1, 0]):
            what = f"targets {targets}, "
            judged(cross_entropy, n, 3 * draw(5, 12), targets, total=7, what=what)


def check_columns_that_are_no_tokens(cross_entropy):
    for n, v in [(2, 11), (3, 10), (4, 13), (3, 11), (4, 5)]:  # at last: rank 3 has no tokens
        logits, targets = 2 * draw(5, v), [0, v - 1, 3, -1, v - 2]
        for padding in (0.0, 5.0):
            rows = -(-v // n)
            losses, grads, _ = split_loss(cross_entropy, n, logits, targets, 4, padding=padding)
            wide = np.concatenate([logits, np.full((5, rows * n - v), padding)], axis=1)
            (right, dlogits), (counted, _) = [loss_by_loop(x, targets, 4) for x in (logits, wide)]
            first = (n - 1) * rows  # of the last rank
            some, _ = loss_by_loop(wide[:, : max(first, v)], targets, 4)
            empty = {
                "rank 3 has no token at all: is -inf its largest logit, and is -inf subtracted "
                "from -inf?": [np.asarray(np.nan)] * n,
            }  # fmt: skip
            what = f"{v} tokens, {rows} columns on each of {n} ranks"
            same(losses, [np.asarray(right)] * n, f"loss, {what}", {
                "columns that are no tokens count as some": [np.asarray(counted)] * n,
                "padding is not the last rank's alone: other ranks may have some, too":
                    [np.asarray(some)] * n,
                **(empty if first >= v else {}), **wrong_losses(logits, targets, 4, n),
            }, by="rank")  # fmt: skip
            dlogits = np.concatenate([dlogits, np.zeros((5, rows * n - v))], axis=1)
            same(grads, np.split(dlogits, n, axis=1), f"dlogits, {what}", by="rank")


def check_gradient_of_the_loss(cross_entropy):
    for n in SIZES:
        for dloss in (1.0, 0.25):
            logits, targets = 2 * draw(5, 12), [3, -1, 11, 6, 0]
            grads, right, what, _ = judged(cross_entropy, n, logits, targets, 7, dloss)
            tokens = np.arange(5)
            counted = np.array(targets) >= 0
            twice, first, own = [[r.copy() for r in right] for _ in range(3)]
            for r in range(n):
                rows = 12 // n
                place = np.clip(np.array(targets) - r * rows, 0, rows - 1)
                away = counted & (np.array(targets) // rows != r)
                twice[r][tokens, place] -= away * dloss / 7
                first[r][:, 0] -= away * dloss / 7
                e = np.exp(logits[:, r * rows : r * rows + rows])
                own[r] = own[r] + (e / e.sum(1)[:, None] - e / np.exp(logits).sum(1)[:, None]) * (
                    counted * dloss / 7)[:, None]  # fmt: skip
            same(grads, right, f"dlogits, {what}, dloss {dloss:g}", {
                "1 is subtracted on ranks that do not have the target": twice,
                "1 is subtracted in the first column of ranks that do not have the target": first,
                "these are no probabilities over all columns: divide by the sum over ranks": own,
                "it does not depend on dloss": [r / dloss for r in right],
                "it is not divided by `total`": [7 * r for r in right],
                "it is divided by `total` twice": [r / 7 for r in right],
                "as many times too large as there are ranks: the loss is whole on each, not a "
                "part of a sum": [n * r for r in right],
                "divided by the number of ranks": [r / n for r in right],
            }, by="rank")  # fmt: skip


def check_float32_gradient(cross_entropy):
    logits, targets = draw(3, 12).astype(np.float32), np.array([1, -1, 9])

    def program(rank, mine, targets):
        return answer(cross_entropy, rank.tp, mine, targets, np.int64(2), 12)[1](1.0)

    parts = np.split(logits, 3, axis=1)  # 3 times [3, 4]
    grads = on_ranks(program, Mesh(tp=3), parts, [targets] * 3, may_change=True)
    right = loss_by_loop(logits, targets, 2)[1].astype(np.float32)
    right = np.split(right, 3, axis=1)
    mistakes = {}
    if all(getattr(g, "dtype", None) == np.float64 and g.shape == r.shape
           and np.allclose(g, r, 1e-5, 1e-5) for g, r in zip(grads, right)):  # fmt: skip
        mistakes["the numbers are right, only the dtype is not: `total` may be a NumPy integer, "
                 "and then dloss / total is a float64: .astype(logits.dtype)"] = grads  # fmt: skip
    same(grads, right, "dlogits of float32 logits, 3 ranks", mistakes, by="rank")


def check_logits_are_not_gathered(cross_entropy):
    for n in (2, 3, 4):
        logits = draw(6, 48)
        _, _, mesh = split_loss(cross_entropy, n, logits, [0, 47, 20, -1, 13, 30])
        for device in mesh.devices:
            not_more_than(
                device.sent["tp"], 8 * 6 * 3 * 2 * (n - 1),
                f"bytes sent by {device} of {n}, 6 tokens, 48 columns",
                "a few numbers per token are sent, never the logits",
            )  # fmt: skip


def check_it_runs_without_numbers(cross_entropy):
    def program(rank):
        logits, targets = rank.device.empty((6, 4), "bf16"), rank.device.empty(6, "int64")
        loss, back = answer(cross_entropy, rank.tp, logits, targets, 6, 11)
        dlogits = back(1.0)
        for what, x, shape in (("loss", loss, ()), ("dlogits", dlogits, (6, 4))):
            if getattr(x, "shape", None) != shape or getattr(x, "device", None) != rank.device:
                raise AssertionError(
                    f"{what} of [6, 4] logits without numbers: expected {list(shape)} on "
                    f"{rank.device}, got {brief(x)}"
                )

    try:
        on_ranks(program, Mesh(tp=3))
    except (ValueError, TypeError) as error:
        raise AssertionError(
            f"on arrays without numbers: {error}: let np.where choose, not an if or a float"
        ) from error
