"""The checks of lesson 11."""

import numpy as np

from gpt_numpy.mesh import Mesh
from gpt_numpy.optim import AdamW
from lessons.checking import SIZES, brief, on_ranks, same

# ---- state_bytes


def bytes_of(state_bytes, n_params, dp, stage, grad_bytes):
    def total(weight, grad, optimizer, split=stage):
        split_at = {3: weight, 2: grad, 1: optimizer}
        return n_params * sum(b / (dp if split >= at else 1) for at, b in split_at.items())

    right = total(2, grad_bytes, 12)
    last, together = n_params / dp, n_params * (2 + grad_bytes + 12) / dp
    mistakes = {
        "the optimizer's state is not only Adam's two means: it has an fp32 weight, too": total(
            2, grad_bytes, 8
        ),
        "Adam has two means of 4 bytes, and there is the fp32 weight": total(2, grad_bytes, 4),
        "gradients are split from stage 2 on, not before": n_params * 2 + together - last * 2,
        "stage 2 splits the gradients, all of them": total(2, grad_bytes, 12, 1),
        "stage 3 splits the weights, too": total(2, grad_bytes, 12, 2),
        "the weights are split last, at stage 3": together,
        "stage 0 splits nothing, so stage 1 is the first that does": total(
            2, grad_bytes, 12, stage + 1
        ),
        "gradients have grad_bytes bytes": total(2, 2, 12),
        "gradients have grad_bytes bytes, weights 2": total(grad_bytes, 2, 12),
        "bytes of one rank, not of all": right * dp,
    }
    what = f"bytes of {n_params:g} parameters, dp {dp}, stage {stage}, grad_bytes {grad_bytes}"
    same(state_bytes(n_params, dp, stage, grad_bytes), right, what, mistakes)


def check_7_5_billion_on_64(state_bytes):
    for stage, gigabytes in enumerate([120.0, 31.40625, 16.640625, 1.875]):
        bytes_of(state_bytes, 7.5e9, 64, stage, 2)
        same(state_bytes(7.5e9, 64, stage), 1e9 * gigabytes, f"bytes at stage {stage}")


def check_one_rank_holds_it_all(state_bytes):
    for stage in range(4):
        bytes_of(state_bytes, 1, 1, stage, 2)
        bytes_of(state_bytes, 3, 1, stage, 4)
    same(state_bytes(10), 160.0, "bytes of 10 parameters, nothing else said")


def check_fp32_gradients(state_bytes):
    for dp in (64, 3):
        for stage in range(4):
            bytes_of(state_bytes, 1e9, dp, stage, 4)


def check_few_ranks(state_bytes):
    for dp in (2, 3, 7):
        for stage in range(4):
            bytes_of(state_bytes, 1000, dp, stage, 2)


# ---- shards

BUCKET = {"w": (3, 7), "b": (5,), "g": (4,)}
DIVIDES = {"w": (12, 2)}


class Counted:
    """A group that notes which communications are asked for."""

    def __init__(self, group):
        self.rank, self.size, self.group, self.asked = group.rank, group.size, group, []

    def __getattr__(self, name):
        if name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                    "send", "recv", "isend", "irecv"):  # fmt: skip
            self.asked.append(name)
        return getattr(self.group, name)

    def only(self, call, when=""):
        if self.asked != [call]:
            asked = ", ".join(self.asked) or "nothing"
            raise AssertionError(f"the bucket travels in one {call}{when}, asked for: {asked}")


def bucket(shapes, seed, dtype=np.float64):
    """Whole numbers, so that sums are exact."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(1, 90, shape).astype(dtype) for name, shape in shapes.items()}


def cut(x, n):
    """The shards of n ranks, element by element."""
    flat, k = x.ravel(), -(-x.size // n)
    shards = [np.zeros(k, x.dtype) for _ in range(n)]
    for i, value in enumerate(flat):
        shards[i // k][i % k] = value
    return shards


def by_rank(cuts, n):
    """{name: shards by rank} -> for each rank {name: shard}."""
    return [{name: shards[rank] for name, shards in cuts.items()} for rank in range(n)]


def a_function(wait):
    if not callable(wait):
        raise AssertionError(f"expected a function that waits for the shards, got {brief(wait)}")
    return wait


def reduced(reduce_scatter, shapes, n, dtype=np.float64):
    """Run it, refuse wrong shards; the mesh has the meters."""
    parts = [bucket(shapes, rank, dtype) for rank in range(n)]
    total = {name: sum(part[name] for part in parts) for name in shapes}
    right = by_rank({name: cut(x, n) for name, x in total.items()}, n)

    def mistake(one):
        return by_rank({name: one(x) for name, x in total.items()}, n)

    def in_front(x):
        k = -(-x.size // n)
        return list(np.concatenate([np.zeros(n * k - x.size, dtype), x.ravel()]).reshape(n, k))

    def every_nth(x):
        k = -(-x.size // n)
        return list(np.concatenate([x.ravel(), np.zeros(n * k - x.size, dtype)]).reshape(k, n).T)

    joined = np.concatenate([x.ravel() for x in total.values()])
    ends = np.cumsum([-(-x.size // n) for x in total.values()])[:-1]
    one_array = [dict(zip(shapes, np.split(shard, ends))) for shard in cut(joined, n)]
    own = [{name: cut(x, n)[rank] for name, x in part.items()} for rank, part in enumerate(parts)]
    mistakes = {
        "this is the rank's own part of the sum: has anything been reduced?": own,
        "this is the mean: a reduce is the sum": mistake(
            lambda x: [shard / n for shard in cut(x, n)]
        ),
        "that is the whole sum: where is the scatter?": mistake(lambda x: [x] * n),
        "padding is at the end of the array": mistake(in_front),
        "rank r has the r-th part, not every n-th number": mistake(every_nth),
        "no padding: all shards of an array are equally long": mistake(
            lambda x: np.array_split(x.ravel(), n)
        ),
        "that is the next rank's shard": mistake(lambda x: cut(x, n)[1:] + cut(x, n)[:1]),
        "the bucket was cut as one long array: each array is cut by itself": one_array,
    }
    mesh = Mesh(dp=n)
    got = on_ranks(
        lambda rank, grads: a_function(reduce_scatter(grads, rank.dp))(), mesh, parts
    )
    same(got, right, f"reduce_scatter of {shapes} on {n} ranks", mistakes, by="rank")
    return mesh


def check_each_rank_gets_its_shard_of_the_sum(reduce_scatter):
    for n in SIZES:
        reduced(reduce_scatter, DIVIDES, n)


def check_padding_is_at_the_end(reduce_scatter):
    for n in (2, 3, 4, 7):
        reduced(reduce_scatter, {"b": (5,)}, n)
        reduced(reduce_scatter, {"w": (3, 7)}, n)


def check_arrays_of_a_bucket_are_cut_one_by_one(reduce_scatter):
    for n in SIZES:
        reduced(reduce_scatter, BUCKET, n)


def check_shards_have_the_gradients_dtype(reduce_scatter):
    reduced(reduce_scatter, BUCKET, 3, np.float32)


def check_half_of_an_all_reduce_is_sent(reduce_scatter):
    for n in (2, 3, 4):
        mesh = reduced(reduce_scatter, BUCKET, n)
        padded = sum(-(-np.prod(shape) // n) * n for shape in BUCKET.values())
        sent = [device.sent["dp"] for device in mesh.devices]
        once = [int((n - 1) * 8 * padded // n)] * n
        whole = {"that is an all-reduce: a reduce-scatter is half of it": [2 * once[0]] * n}
        same(sent, once, f"bytes sent on {n} ranks", whole)


def check_it_is_under_way_and_waits_for_nobody(reduce_scatter):
    events = []

    def program(rank, grads):
        group = Counted(rank.dp)
        events.append(f"rank {rank.rank} begins")
        wait = a_function(reduce_scatter(grads, group))
        events.append(f"rank {rank.rank} goes on")
        group.only("reduce_scatter", " that is under way when reduce_scatter returns")
        shards = wait()
        group.only("reduce_scatter")
        return shards

    on_ranks(program, Mesh(dp=2), [bucket(BUCKET, rank) for rank in range(2)])
    if events[1] != "rank 0 goes on":
        raise AssertionError(
            "rank 0 waits for rank 1 before it returns: start with async_op=True, and wait in the "
            "function that is returned"
        )


def check_gradients_are_let_go(reduce_scatter):
    shapes = {"w": (40, 10), "b": (9,)}

    def program(rank, grads):
        before, copy = rank.device.held, {name: x.copy() for name, x in grads.items()}
        wait = a_function(reduce_scatter(copy, rank.dp))
        del copy
        shards = wait()
        more = rank.device.held - before
        if more >= 8 * 409:
            raise AssertionError(
                f"{more} bytes more are held after the reduction of {8 * 409}, whose shards have "
                "a quarter of that: the function that waits still holds the gradients"
            )
        return shards

    on_ranks(program, Mesh(dp=4), [bucket(shapes, rank) for rank in range(4)])


# ---- all_gather


def gathered(all_gather, shapes, n, dtype=np.float64, more=(), turned=False):
    """Run it, refuse wrong arrays; the mesh has the meters."""
    whole = bucket(shapes, 0, dtype)
    shards = by_rank({name: cut(x, n) for name, x in whole.items()}, n)

    def rebuilt(rows_of):
        """What the rows [n, k] of each array give for each rank, cut and shaped."""
        found = []
        for rank in range(n):
            arrays = {}
            for name, x in whole.items():
                rows = np.concatenate(rows_of(cut(x, n), rank))
                arrays[name] = rows[: x.size].reshape(x.shape)
            found.append(arrays)
        return found

    end_to_end = np.concatenate([np.concatenate(list(shard.values())) for shard in shards])
    starts = np.cumsum([0, *[n * (-(-x.size // n)) for x in whole.values()]])
    in_a_row = {
        name: end_to_end[start : start + x.size].reshape(x.shape)
        for start, (name, x) in zip(starts, whole.items())
    }
    mistakes = {
        "the padding is still there": [
            {name: np.concatenate(cut(x, n)) for name, x in whole.items()}
        ]
        * n,
        "the array's shape is in shapes": [{name: x.ravel() for name, x in whole.items()}] * n,
        "one's own shard is not the first: they come in the order of the ranks": rebuilt(
            lambda shards, rank: shards[rank:] + shards[:rank]
        ),
        "what arrives is one rank's whole bucket after another: a name's shards are not side by "
        "side in it": [in_a_row] * n,
        "these are the rank's own shards: has anything arrived?": shards,
        "this is its own shard and zeros: has anything arrived?": rebuilt(
            lambda shards, rank: [s * (r == rank) for r, s in enumerate(shards)]
        ),
    }
    if turned:
        table, start, shapes = np.array([np.concatenate([*s.values()]) for s in shards]), 0, {}
        swapped = {}
        for name in reversed(whole):
            x, k = whole[name], shards[0][name].size
            swapped[name] = table[:, start : start + k].ravel()[: x.size].reshape(x.shape)
            start, shapes[name] = start + k, x.shape
        mistakes["shards and shapes may have their names in different orders: cut in the order in "
                 "which they were joined"] = [swapped] * n  # fmt: skip
    mesh = Mesh(dp=n)
    shapes = dict(more) | dict(shapes)
    got = on_ranks(lambda rank, shard: all_gather(shard, shapes, rank.dp), mesh, shards)
    same(got, [whole] * n, f"all_gather of {shapes} on {n} ranks", mistakes, by="rank")
    return mesh


def check_whole_arrays_on_every_rank(all_gather):
    for n in SIZES:
        gathered(all_gather, DIVIDES, n)


def check_padding_is_cut_off(all_gather):
    for n in (2, 3, 4, 7):
        gathered(all_gather, {"w": (3, 7)}, n)
        gathered(all_gather, {"b": (5,)}, n)


def check_a_bucket_of_several_arrays(all_gather):
    for n in SIZES:
        gathered(all_gather, BUCKET, n)
    gathered(all_gather, BUCKET, 3, np.float32)
    for n in (2, 3):
        gathered(all_gather, BUCKET, n, turned=True)


def check_shapes_of_other_arrays_do_no_harm(all_gather):
    gathered(all_gather, {"b": (5,), "g": (4,)}, 2, more={"w": (3, 7)})


def check_one_message_and_its_bytes(all_gather):
    for n in (2, 3, 4):
        mesh = gathered(all_gather, BUCKET, n)
        ks = [-(-int(np.prod(shape)) // n) for shape in BUCKET.values()]
        sent = [device.sent["dp"] for device in mesh.devices]
        once = [(n - 1) * 8 * sum(ks)] * n
        twice = {"that is an all-reduce: an all-gather is half of it": [2 * once[0]] * n}
        same(sent, once, f"bytes sent on {n} ranks", twice)

    def program(rank, shards):
        group = Counted(rank.dp)
        whole = all_gather(shards, BUCKET, group)
        group.only("all_gather")
        return whole

    cuts = {name: cut(x, 2) for name, x in bucket(BUCKET, 0).items()}
    on_ranks(program, Mesh(dp=2), by_rank(cuts, 2))


# ---- zero1_step


class Plain:
    """w -= lr * g, which shows a wrong factor; Adam hides it."""

    def step(self, params, grads, lr):
        for name, w in params.items():
            w -= lr * grads[name]


class Watched:
    """An optimizer that refuses what is not its rank's shards."""

    def __init__(self, optimizer, sizes, rank):
        self.optimizer, self.sizes, self.rank = optimizer, sizes, rank

    def step(self, params, grads, lr):
        for what, arrays in (("weights", params), ("gradients", grads)):
            if not isinstance(arrays, dict) or arrays.keys() != self.sizes.keys():
                raise AssertionError(f"the optimizer wants {what} by name, got {brief(arrays)}")
            for name, x in arrays.items():
                if getattr(x, "shape", None) != (self.sizes[name],):
                    raise AssertionError(
                        f"rank {self.rank}: {what} {name!r} for the optimizer are {brief(x)}: "
                        f"it moves this rank's shard alone, [{self.sizes[name]}]"
                    )
        self.optimizer.step(params, grads, lr)


def adam(w, grads, lr, betas=(0.9, 0.99), eps=1e-8):
    """Adam's steps on one device."""
    m = v = 0.0
    for t, g in enumerate(grads, 1):
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        w = w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return w


def plain(w, grads, lr):
    for g in grads:
        w = w - lr * g
    return w


def make_adam(shards):
    return AdamW(shards, betas=(0.9, 0.99), weight_decay=0.0)


def stepped(zero1_step, weights, grads, what, update, make, right=None, lr=0.1):
    """Run steps, refuse wrong weights; the mesh has the meters. grads: [step][rank][name]."""
    n = len(grads[0])

    def after(choose, pick=lambda new, old, k, rank: new):
        """Weights by rank, if the gradient of each shard's owner is what `choose` says."""
        found = [{} for _ in range(n)]
        for name, w in weights.items():
            k = -(-w.size // n)
            owner = np.arange(w.size) // k
            new = np.array([
                update(w.ravel(), [choose([g[name].ravel() for g in step], r) for step in grads],
                       lr) for r in range(n)
            ])[owner, np.arange(w.size)]  # fmt: skip
            for rank in range(n):
                found[rank][name] = pick(new, w.ravel(), k, rank).reshape(w.shape)
        return found

    def rolled(new, old, k, rank):
        padded = np.concatenate([new, np.zeros(n * k - new.size)]).reshape(n, k)
        return np.roll(padded, -rank, axis=0).ravel()[: new.size]

    def only_own(new, old, k, rank):
        return np.where(np.arange(new.size) // k == rank, new, old)

    def summed(gs, r):
        return sum(gs)

    mistakes = {
        "each shard was moved by its rank's own gradient: where is the reduce-scatter?": after(
            lambda gs, r: gs[r]
        ),
        "only the rank's own shard is new: where is the all-gather?": after(summed, only_own),
        "this is a mean over ranks: their gradients are parts of a sum": after(
            lambda gs, r: sum(gs) / n
        ),
        "one's own shard is not the first: they come in the order of the ranks": after(
            summed, rolled
        ),
        "the weights are the old ones: was it a copy that moved?": [weights] * n,
        "the step goes uphill": after(lambda gs, r: -sum(gs)),
    }
    sizes = {name: -(-w.size // n) for name, w in weights.items()}
    mesh = Mesh(dp=n)

    def program(rank, weights, grads):
        shards = {name: rank.device.put(np.zeros(k)) for name, k in sizes.items()}
        optimizer = Watched(make(shards), sizes, rank.rank)
        for g in grads:
            weights = zero1_step(weights, g, optimizer, lr, rank.dp)
            if not isinstance(weights, dict):
                raise AssertionError(f"expected the new weights by name, got {brief(weights)}")
        return weights

    grads_of = [[step[rank] for step in grads] for rank in range(n)]
    got = on_ranks(program, mesh, [weights] * n, grads_of)
    same(got, right or after(summed), what, mistakes, by="rank")
    return mesh


def random_case(n, steps, shapes=BUCKET):
    rng = np.random.default_rng(n)
    draw = lambda: {k: rng.standard_normal(shape) for k, shape in shapes.items()}  # noqa: E731
    return draw(), [[draw() for _ in range(n)] for _ in range(steps)]


def named(*rows):
    return [{"w": np.array(row, float)} for row in rows]


EXAMPLE = [named([1, 2, 3, 0, 4], [3, 0, 1, 2, 0]), named([0, 1, 1, 2, 1], [2, 1, 3, 0, 1])]


def check_two_steps_of_adam(zero1_step):
    weights = {"w": np.zeros(5)}
    what = "five weights on two ranks, two steps of Adam"
    stepped(zero1_step, weights, EXAMPLE, what, adam, make_adam)
    for n in SIZES:
        what = f"three steps of Adam on {n} ranks"
        stepped(zero1_step, *random_case(n, 3), what, adam, make_adam)


def check_ranks_that_agree(zero1_step):
    grads = [named([1, 2, 3, 4], [1, 2, 3, 4])]
    right = named([-0.1, -0.1, -0.1, -0.1]) * 2
    stepped(zero1_step, {"w": np.zeros(4)}, grads, "equal gradients, a step of Adam",
            lambda w, g, lr: adam(w, g, lr, eps=0.0),
            lambda shards: AdamW(shards, eps=0.0, weight_decay=0.0), right)  # fmt: skip


def check_gradients_are_summed(zero1_step):
    for n in SIZES:
        what = f"w -= lr * g on {n} ranks"
        stepped(
            zero1_step, *random_case(n, 1), what, plain, lambda shards: Plain(), lr=0.03
        )


def check_it_sends_what_an_all_reduce_does(zero1_step):
    for n in (2, 3, 4):
        mesh = stepped(zero1_step, *random_case(n, 1), f"a step on {n} ranks", plain,
                       lambda shards: Plain())  # fmt: skip
        sent = [device.sent["dp"] for device in mesh.devices]
        once = (n - 1) * 8 * sum(-(-int(np.prod(shape)) // n) for shape in BUCKET.values())
        mistakes = {
            "the gradients were all-reduced: a rank needs its shard of the sum only": [3 * once]
            * n,
            "that is one of the two: reduce-scatter and all-gather": [once] * n,
        }
        same(sent, [2 * once] * n, f"bytes sent on {n} ranks", mistakes)


# ---- clip_shards


def clipped(clip_shards, whole, max_norm, n, dtype=np.float64):
    """Run it on the shards of whole arrays, refuse wrong ones; the mesh has the meters."""
    whole = {name: np.asarray(x, dtype) for name, x in whole.items()}
    shards = by_rank({name: cut(x, n) for name, x in whole.items()}, n)

    def scaled(factor):  # factor(name, rank)
        return [
            {name: (shard * factor(name, r)).astype(dtype) for name, shard in own.items()}
            for r, own in enumerate(shards)
        ]

    def length(arrays):
        return float(np.sqrt(sum((np.asarray(x, float) ** 2).sum() for x in arrays)))

    norm, own = length(whole.values()), [length(shard.values()) for shard in shards]
    by_name = {name: length([x]) for name, x in whole.items()}

    def towards(norm):
        return min(1.0, max_norm / norm) if norm else 1.0

    right = [[arrays, norm] for arrays in scaled(lambda name, r: towards(norm))]
    wrong = {
        "each rank clips by its own norm, so they scale by different factors": (
            scaled(lambda name, r: towards(own[r])),
            own,
        ),
        "norms do not add up: add their squares": (
            scaled(lambda name, r: towards(sum(own))),
            [sum(own)] * n,
        ),
        "the largest rank's norm is not that of all": (
            scaled(lambda name, r: towards(max(own))),
            [max(own)] * n,
        ),
        "norms of arrays do not matter one by one: it is the norm of all of them": (
            scaled(lambda name, r: towards(by_name[name])),
            [norm] * n,
        ),
        "a gradient below max_norm stays as it is": (
            scaled(lambda name, r: max_norm / norm if norm else 1.0),
            [norm] * n,
        ),
        "nothing is added to the norm here, as PyTorch adds 1e-6": (
            scaled(lambda name, r: min(1.0, max_norm / (norm + 1e-6))),
            [norm] * n,
        ),
        "that is the norm after, asked is the one before": (
            [arrays for arrays, _ in right],
            [min(norm, max_norm)] * n,
        ),
        "that is the square: take its root": ([arrays for arrays, _ in right], [norm**2] * n),
        "the norm was divided by the ranks: it is a sum": (
            scaled(lambda name, r: towards(norm / n**0.5)),
            [norm / n**0.5] * n,
        ),
        "nothing was clipped": (shards, [norm] * n),
    }
    mesh = Mesh(dp=n)
    got = on_ranks(lambda rank, own: clip_shards(own, max_norm, rank.dp), mesh, shards)
    for rank, y in enumerate(got):
        if not isinstance(y, (list, tuple)) or len(y) != 2 or not isinstance(y[0], dict):
            raise AssertionError(f"rank {rank}: expected shards and their norm, got {brief(y)}")
    hints = {
        hint: [[a, b] for a, b in zip(arrays, norms)] for hint, (arrays, norms) in wrong.items()
    }
    shapes = {name: x.shape for name, x in whole.items()}
    what = f"gradients of {shapes} on {n} ranks, of norm {norm:.5g}, max_norm {max_norm:g}"
    if dtype == np.float32:
        got = [[arrays, float(norm)] for arrays, norm in got]
        same([arrays for arrays, _ in got], [arrays for arrays, _ in right], what, by="rank")
        near = [abs(norm - right[0][1]) < 1e-5 * right[0][1] for _, norm in got]
        same(near, [True] * n, f"{what}: is the norm right?", by="rank")
    else:
        same(got, right, what, hints, by="rank")
    return mesh


def check_two_shards(clip_shards):
    clipped(clip_shards, {"w": [3, 0, 0, 4]}, 1.0, 2)
    clipped(clip_shards, {"w": [4, 2, 4, 2, 4]}, 2.0, 2)


def check_one_shard_is_zero(clip_shards):
    clipped(clip_shards, {"w": [3, 4, 0, 0]}, 1.0, 2)
    clipped(clip_shards, {"w": [0, 0, 6, 8, 0, 0]}, 5.0, 3)


def check_a_short_gradient_stays(clip_shards):
    clipped(clip_shards, {"w": [0.3, 0.4]}, 1.0, 2)
    clipped(clip_shards, {"w": [0.9, 0.1, 0.1]}, 1.0, 3)
    clipped(clip_shards, {"w": [0.6, 0.8, 0.9]}, 2.0, 3)


def check_one_rank(clip_shards):
    clipped(clip_shards, {"w": [3, 4]}, 1.0, 1)


def check_several_arrays_have_one_norm(clip_shards):
    for n in SIZES:
        whole = {name: x / 10 for name, x in bucket(BUCKET, 3).items()}
        clipped(clip_shards, whole, 2.5, n)
    clipped(clip_shards, whole, 2.5, 3, np.float32)


def check_no_gradient_at_all(clip_shards):
    clipped(clip_shards, {"w": np.zeros(4), "b": np.zeros(3)}, 1.0, 2)


def check_a_few_numbers_are_sent(clip_shards):
    whole = {name: np.arange(1.0, 301) for name in ("w", "b")}
    for n in (2, 3, 4):
        mesh = clipped(clip_shards, whole, 10.0, n)
        sent = max(device.sent["dp"] for device in mesh.devices)
        if sent > 8 * 4 * n:
            raise AssertionError(
                f"a rank sends {sent} bytes on {n} ranks: the gradient itself travels, but its "
                "sum of squares is enough, a number"
            )
