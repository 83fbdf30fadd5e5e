"""The checks of lesson 7. Their oracles are loops over tokens and ranks."""

import numpy as np

from gpt_numpy.mesh import Mesh
from lessons.checking import SIZES, brief, on_ranks, same, unchanged

MALFORMED_OK = {"accumulate": ("None",)}  # which is what it returns


def draw(*shape, seed=0):  # no two alike, and none of them 0
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def limit_sent(mesh, n, numbers, size=8):
    """Refuse more bytes than an all-reduce of so many numbers takes, over all ranks."""
    got, most = sum(device.sent["dp"] for device in mesh.devices), 2 * (n - 1) * size * numbers
    assert got <= most, (
        f"{n} ranks have sent {got:,} bytes, expected {most:,} at most: reduce once, when all of "
        "the rank's own gradients are added up"
    )


# ---- dp_mean_gradient


def mean_of(dp_mean_gradient, means, counts):
    total = sum(counts)
    right = sum(g * (n / total) for g, n in zip(means, counts))
    ranks = len(counts)
    busy = [g for g, n in zip(means, counts) if n]
    mistakes = {
        "the mean of means: a rank with more tokens counts for more": sum(means) / ranks,
        "the sum of means: it grows with the number of ranks": sum(means),
        "the mean over ranks that have tokens: they do not have equally many": sum(busy)
        / len(busy),
        "divided by the number of ranks as well: all tokens are counted already": right / ranks,
        "the sum over all tokens: it is not yet divided by their number": right * total,
        "weighted the wrong way round": sum(g * (1 - n / total) for g, n in zip(means, counts)),
        "multiplied by the number of ranks": right * ranks,
    }
    with unchanged(means, counts):
        got = dp_mean_gradient(means, counts)
    same(got, right, f"the gradient of the mean, with {counts} tokens on the ranks", mistakes)


def check_uneven_tokens(dp_mean_gradient):
    mean_of(dp_mean_gradient, [np.array([1.0]), np.array([5.0])], [3, 1])
    for n in SIZES:
        mean_of(dp_mean_gradient, list(draw(n, 5)), [2 * i * i + 1 for i in range(n)])


def check_even_tokens(dp_mean_gradient):
    mean_of(dp_mean_gradient, [np.array([1.0]), np.array([5.0])], [2, 2])
    for n in SIZES:
        mean_of(dp_mean_gradient, list(draw(n, 5)), [7] * n)


def check_rank_without_tokens(dp_mean_gradient):
    mean_of(dp_mean_gradient, [np.array([2.0]), np.array([0.0])], [4, 0])
    mean_of(dp_mean_gradient, [np.zeros(3), *draw(2, 3), np.zeros(3)], [0, 5, 2, 0])


# ---- accumulate


def added(accumulate, sums, *parts):
    for part in parts:
        with unchanged(part):
            returned = accumulate(sums, part)
        assert returned is None, f"nothing is to be returned, got {brief(returned)}"


def check_sums_by_name(accumulate):
    sums, a, b = {"w": np.array([[1.0, 2.0]])}, np.array([[10.0, 20.0]]), np.array([5.0, 6, 7])
    added(accumulate, sums, {"w": a, "b": b})
    mistakes = {
        "overwritten: what was there has to be added": {"w": a, "b": b},
        "these are means: gradients are added": {"w": np.array([[5.5, 11.0]]), "b": b},
        "a new name has to be put there": {"w": np.array([[11.0, 22.0]])},
        "nothing was added": {"w": np.array([[1.0, 2.0]])},
        "the first of a name was added twice": {"w": np.array([[11.0, 22.0]]), "b": 2 * b},
    }
    same(sums, {"w": np.array([[11.0, 22.0]]), "b": b}, "the sums", mistakes)
    fresh = {}
    parts = [{"b": draw(3, seed=i), **({"w": draw(2, 4, seed=i)} if i % 2 else {})}
             for i in range(5)]  # fmt: skip
    right = {"b": sum(draw(3, seed=i) for i in range(5))}
    right["w"] = draw(2, 4, seed=1) + draw(2, 4, seed=3)
    added(accumulate, fresh, *[{name: g.copy() for name, g in part.items()} for part in parts])
    same(fresh, right, "the sums of five, of which two have w", {
        "the last one is left: they are to be added": {"b": parts[4]["b"], "w": parts[3]["w"]},
        "a moving average: gradients are added": {"b": right["b"] / 5, "w": right["w"] / 2},
    })  # fmt: skip


def check_sum_stays_in_its_array(accumulate):
    w, b = np.array([1.0, 2.0]), np.array([3.0])
    sums = {"w": w}
    added(accumulate, sums, {"w": np.array([10.0, 20.0]), "b": b})
    same(sums.get("w"), np.array([11.0, 22.0]), "the sum")
    assert sums["w"] is w, (
        "the sum is in another array: add in place, += , or memory is held for both"
    )
    assert sums.get("b") is b, (
        "the first gradient of a name was copied: it can be taken as it is, without memory for two"
    )


def check_sums_of_arrays_on_a_device(accumulate):
    def program(rank, first, second):
        sums = {}
        accumulate(sums, {"w": first})
        accumulate(sums, {"w": second, "b": second})
        return sums

    xs, ys = [draw(3, 2)], [draw(3, 2, seed=1)]
    got = on_ranks(program, Mesh(), xs, ys, may_change=True)
    same(got, [{"w": xs[0] + ys[0], "b": ys[0]}], "the sums on a device", by="rank")


# ---- all_reduce


class Watched:
    """A group that notes its all-reduces, and when they are waited for."""

    def __init__(self, group):
        self.group, self.rank, self.size, self.started, self.waited = (
            group, group.rank, group.size, 0, False,
        )  # fmt: skip

    def __getattr__(self, name):
        raise AssertionError(f"dp.{name} was used: one dp.all_reduce is all that is needed")

    def all_reduce(self, x, op="sum", async_op=False):
        assert async_op, (
            "dp.all_reduce without async_op=True waits at once: no backward pass can go on behind"
        )
        self.started += 1
        self.work = self.group.all_reduce(x, op, async_op=True)
        return self

    def wait(self):
        self.waited = True
        return self.work.wait()


SHAPES = {"w": (3, 4), "b": (5,), "gain": (1,), "a": (2, 1, 3)}


def buckets(n, dtype=np.float64, shapes=SHAPES):
    return [
        {name: draw(*shape, seed=10 * r + i).astype(dtype)
         for i, (name, shape) in enumerate(shapes.items())} for r in range(n)
    ]  # fmt: skip


def reduced(all_reduce, xs, what):
    def program(rank, grads):
        dp = Watched(rank.dp)
        wait = all_reduce(grads, dp)
        assert callable(wait), f"expected a function that waits, got {brief(wait)}"
        assert dp.started, "nothing is started yet: the reduction begins before the function waits"
        assert dp.started == 1, (
            f"{dp.started} messages: a bucket is one, each message costs its latency"
        )
        assert not dp.waited, "it has waited already: that is for the function that is returned"
        got = wait()
        assert dp.waited and dp.started == 1, "the function has to wait for the reduction"
        return got

    n, mesh = len(xs), Mesh(dp=len(xs))
    got = on_ranks(program, mesh, xs)
    right = {name: sum(x[name] for x in xs) for name in xs[0]}
    same(got, [right] * n, f"{what} on {n} ranks", {
        "this is the mean: counts are divided by already, so it is the sum":
            [{name: (g / n).astype(g.dtype) for name, g in right.items()}] * n,
        "everyone has its own gradients": xs,
        "flat arrays: give each its shape back":
            [{name: g.reshape(-1) for name, g in right.items()}] * n,
    }, by="rank")  # fmt: skip


def check_sum_of_a_bucket(all_reduce):
    for n in SIZES:
        reduced(all_reduce, buckets(n), "a bucket of four arrays")


def check_one_message_that_goes_on_behind(all_reduce):
    for n in (2, 3):
        reduced(all_reduce, buckets(n, shapes={"u": (2, 5), "v": (7,)}), "a bucket of two arrays")


def check_one_array_and_float32(all_reduce):
    for n in (1, 3):
        xs = buckets(n, np.float32, {"w": (4, 3)})
        reduced(all_reduce, xs, "a bucket of one float32 array")


# ---- accumulated_gradient


def accumulated(accumulated_gradient, grads, counts, dtype=np.float64):
    """grads: by rank a list of arrays [d], made 0 where there are no tokens; counts: of them."""
    n, m, total = len(grads), len(grads[0]), sum(map(sum, counts))
    grads = [
        [np.asarray(g, dtype) * (c > 0) for g, c in zip(*both)] for both in zip(grads, counts)
    ]
    right = (sum(sum(own) for own in grads) / total).astype(dtype)  # [d]
    mesh = Mesh(dp=n)
    got = on_ranks(
        lambda rank, own, tokens: accumulated_gradient(own, tokens, rank.dp), mesh, grads, counts
    )
    means = [[g / max(1, c) for g, c in zip(*both)] for both in zip(grads, counts)]
    first = sum(own[0] for own in grads)
    buffers = grads[0][0] * 0, [0 * own[0] for own in grads]
    again = buffers[1]
    for i in range(m):
        again = [sum(b + own[i] for b, own in zip(again, grads))] * n
    weighted = [sum(own) / max(1, sum(c)) for own, c in zip(grads, counts)]
    lost = sum(own[-1] for own in grads)
    mistakes = {
        "the mean of means: all tokens count the same, in whichever micro-batch":
            [sum(sum(own) / m for own in means) / n] * n,
        "the mean of the ranks' means: divide the sum by the count of all ranks":
            [sum(weighted) / n] * n,
        "earlier micro-batches are reduced again and again: each rank adds the others' once more":
            [b / total for b in again],
        "reduced after the first micro-batch: what came later stayed at home, and ranks differ":
            [(first + sum(own[1:], 0 * own[0])) / total for own in grads],
        "only the last micro-batch is left: do not clear what is added up": [lost / total] * n,
        "only the last micro-batch is left, of gradients and of counts":
            [lost / max(1, sum(c[-1] for c in counts))] * n,
        "every rank has only its own: where is the reduction?":
            [sum(own) / total for own in grads],
        "every rank has the mean of its own: where is the reduction?": weighted,
        "not yet divided by the count of tokens": [right * total] * n,
        "divided by this rank's count: take that of all ranks":
            [right * total / max(1, sum(c)) for c in counts],
        "divided by the number of ranks as well": [right / n] * n,
        "divided by the number of micro-batches as well": [right / m] * n,
    }  # fmt: skip
    mistakes = {text: [np.asarray(g, dtype) for g in wrong] for text, wrong in mistakes.items()}
    what = f"{n} ranks with {m} micro-batches of {counts} tokens"
    same(got, [right] * n, what, mistakes, by="rank")
    return mesh, right.size + 1


def check_uneven_micro_batches(accumulated_gradient):
    accumulated(accumulated_gradient, [[[6], [2]], [[4], [9]]], [[3, 1], [1, 3]])
    accumulated(accumulated_gradient, draw(3, 4, 5), [[1, 2, 3, 4], [9, 7, 0, 2], [0, 0, 0, 0]])


def check_even_micro_batches(accumulated_gradient):
    accumulated(accumulated_gradient, [[[4], [2]], [[6], [8]]], [[2, 2], [2, 2]])
    for n in SIZES:
        accumulated(accumulated_gradient, draw(n, 3, 4), [[5, 5, 5]] * n)


def check_one_micro_batch(accumulated_gradient):
    accumulated(accumulated_gradient, [[[6]], [[4]]], [[3], [1]])
    accumulated(accumulated_gradient, draw(3, 1, 2), [[4], [4], [9]], np.float32)


def check_reduced_once(accumulated_gradient):
    for n in SIZES:
        counts = [[i + r for i in range(6)] for r in range(n)]
        mesh, numbers = accumulated(accumulated_gradient, draw(n, 6, 50), counts)
        limit_sent(mesh, n, numbers)


# ---- reduce_and_clip


def clipped(xs, max_norm):
    """Scaled as one if they are too long: {name: array}."""
    norm = np.sqrt(sum((g**2).sum() for g in xs.values()))
    return {name: g * (max_norm / norm if norm > max_norm else 1.0) for name, g in xs.items()}


def total(xs):
    return {name: sum(x[name] for x in xs) for name in xs[0]}


def clip_on_ranks(reduce_and_clip, xs, max_norm, what):
    n, mesh = len(xs), Mesh(dp=len(xs))
    got = on_ranks(lambda rank, grads: reduce_and_clip(grads, max_norm, rank.dp), mesh, xs)
    whole = total(xs)
    lengths = {name: np.sqrt((g**2).sum()) for name, g in whole.items()}
    long = sum(lengths.values())
    mean = {name: g / n for name, g in whole.items()}
    mistakes = {
        "each rank has clipped before the sum: the sum has another direction, and another length":
            [total([clipped(x, max_norm) for x in xs])] * n,
        "clipped before the sum, and after it again": [
            clipped(total([clipped(x, max_norm) for x in xs]), max_norm)] * n,
        "each rank has clipped to its share before the sum":
            [total([clipped(x, max_norm / n) for x in xs])] * n,
        "each array is clipped by itself: that turns the direction":
            [{name: clipped({name: g}, max_norm)[name] for name, g in whole.items()}] * n,
        "the norms of the arrays were added: add their squares":
            [{name: g * min(1, max_norm / long) if long else g for name, g in whole.items()}] * n,
        "always scaled to max_norm: what is shorter stays as it is":
            [{name: g * (max_norm / np.sqrt(sum(v**2 for v in lengths.values())) if long else 1)
              for name, g in whole.items()}] * n,
        "not clipped": [whole] * n,
        "this is the mean over ranks: counts are divided by already, so it is the sum":
            [clipped(mean, max_norm)] * n,
        "every element is cut by itself":
            [{name: np.clip(g, -max_norm, max_norm) for name, g in whole.items()}] * n,
        "every rank has only its own, clipped": [clipped(x, max_norm) for x in xs],
        "scaled by the norm of the rank's own gradient, not of the sum": [
            {name: g / max(1, np.sqrt(sum((v**2).sum() for v in x.values())) / max_norm)
             for name, g in whole.items()} for x in xs],
    }  # fmt: skip
    same(got, [clipped(whole, max_norm)] * n, f"{what}, {n} ranks", mistakes, by="rank")
    return mesh, sum(g.size for g in whole.values())


def two():
    return [{"a": np.array([3.0, 0.0]), "b": np.array([0.0])},
            {"a": np.array([0.0, 0.0]), "b": np.array([4.0])}]  # fmt: skip


def check_two_ranks(reduce_and_clip):
    clip_on_ranks(reduce_and_clip, two(), 1.0, "sum [3, 0], [4], max_norm 1")
    for n in SIZES:
        xs = buckets(n)
        clip_on_ranks(reduce_and_clip, xs, 0.5, "four arrays, max_norm 0.5")


def check_small_gradient_is_untouched(reduce_and_clip):
    small = {"a": np.array([0.1, 0.0]), "b": np.array([0.2])}
    for n in (1, 2, 4):
        clip_on_ranks(reduce_and_clip, [small] * n, 1.0, "[0.1, 0], [0.2] everywhere, max_norm 1")
    clip_on_ranks(reduce_and_clip, two(), 7.0, "sum [3, 0], [4], max_norm 7")


def check_parts_that_cancel_out(reduce_and_clip):
    xs = two()
    xs[1] = {"a": np.array([-2.5, 0.2]), "b": np.array([-0.3])}  # the sum is shorter than max_norm
    clip_on_ranks(reduce_and_clip, xs, 1.0, "sum [0.5, 0.2], [-0.3], max_norm 1")
    xs[1] = {name: -g for name, g in xs[0].items()}
    clip_on_ranks(reduce_and_clip, xs, 1.0, "gradients whose sum is 0")


def check_one_rank(reduce_and_clip):
    xs = [{"a": np.array([3.0, 0.0]), "b": np.array([4.0])}]
    clip_on_ranks(reduce_and_clip, xs, 1.0, "[3, 0], [4], max_norm 1")


def check_sent_once(reduce_and_clip):
    for n in SIZES:
        mesh, numbers = clip_on_ranks(reduce_and_clip, buckets(n), 0.7, "four arrays")
        limit_sent(mesh, n, numbers + 1)
