"""The checks of lesson 12. Their oracles are loops over the grid, and whole arrays."""

import numpy as np

from gpt_numpy.mesh import Mesh
from lessons.checking import on_ranks, same

AXES = "dp", "pp", "tp"


def draw(*shape, seed=0):  # no two alike, and none of them 0
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


# ---- rank_coordinates


def numbered(sizes, order):
    """{rank: its coordinates along dp, pp, tp}, where the axes in order change ever faster."""
    places, found = [{}], {}
    for axis in order:
        places = [place | {axis: i} for place in places for i in range(sizes[axis])]
    for rank, place in enumerate(places):
        found[rank] = tuple(place[axis] for axis in AXES)
    return found


ORDERS = {
    "pp changes slowest here, as in Megatron-LM: the order asked for is dp, pp, tp":
        ("pp", "dp", "tp"),
    "dp changes fastest here: then the ranks of a tp group sit in different nodes":
        ("pp", "tp", "dp"),
    "dp changes fastest here: the last of dp, pp, tp does": ("tp", "pp", "dp"),
    "pp changes fastest here: the last of dp, pp, tp does": ("dp", "tp", "pp"),
    "pp changes fastest, and tp slowest here": ("tp", "dp", "pp"),
}  # fmt: skip


def coordinates(rank_coordinates, dp, pp, tp):
    sizes = {"dp": dp, "pp": pp, "tp": tp}
    right = numbered(sizes, AXES)
    got = {rank: rank_coordinates(rank, dp, pp, tp) for rank in right}
    mistakes = {text: numbered(sizes, order) for text, order in ORDERS.items()}
    mistakes["these are the coordinates along tp, pp, dp: give them along dp, pp, tp"] = {
        rank: place[::-1] for rank, place in right.items()
    }
    what = f"the coordinates (dp, pp, tp) by rank in a grid of {dp} x {pp} x {tp}"
    same(got, right, what, mistakes)
    for rank, place in got.items():
        for i in place:
            whole = isinstance(i, (int, np.integer)) and not isinstance(i, bool)
            assert whole, f"{what}: expected whole numbers, got {place} for rank {rank}"
    return got


def groups(places, axis):
    """The ranks that differ along one axis only."""
    found = {}
    for rank, place in places.items():
        rest = tuple(i for name, i in zip(AXES, place) if name != axis)
        found.setdefault(rest, []).append(rank)
    return sorted(found.values())


def check_three_different_sizes(rank_coordinates):
    for sizes in [(2, 3, 4), (4, 3, 2), (3, 2, 5), (2, 5, 3)]:
        coordinates(rank_coordinates, *sizes)


def check_tp_groups_stay_in_a_node(rank_coordinates):
    got = groups(coordinates(rank_coordinates, dp=2, pp=2, tp=4), "tp")
    same(got, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]], "tp groups")


def check_stages_and_copies(rank_coordinates):
    got = coordinates(rank_coordinates, dp=2, pp=3, tp=2)
    same(groups(got, "pp"), [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]], "pp groups")
    same(groups(got, "dp"), [[i, i + 6] for i in range(6)], "dp groups")


def check_axes_of_one(rank_coordinates):
    for sizes in [(6, 1, 1), (1, 6, 1), (1, 1, 6), (1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 1, 1)]:
        coordinates(rank_coordinates, *sizes)


# ---- micro_batches


def count(micro_batches, batch, size, world, tp, pp, what):
    right = sum(1 for _ in range(0, batch // (world // tp // pp), size))
    got = micro_batches(batch, size, world, tp, pp)
    same(got, right, f"{what}: micro-batches of a pipeline", {
        "every rank would have sequences of its own: tp and pp ranks share theirs":
            batch // world // size,
        "the stages of a pipeline would share out the batch: every stage sees all of it":
            batch // (world // tp) // size,
        "the tp ranks would read different sequences: they compute parts of the same products":
            batch // (world // pp) // size,
        "these are sequences: how many are in a micro-batch?": batch // (world // tp // pp),
        "these are the micro-batches of all pipelines together": batch // size,
        "that is dp": world // tp // pp,
        "a pipeline has dp * tp * pp ranks? It has tp * pp": batch // (tp * pp) // size,
    })  # fmt: skip
    whole = isinstance(got, (int, np.integer))
    assert whole, f"{what}: expected a whole number, got {got!r}: // divides whole numbers"


def check_megatron_175b(micro_batches):
    count(micro_batches, 1536, 1, 1024, 8, 8, "a batch of 1536 on 1024 GPUs, tp 8, pp 8")


def check_megascale_12288_gpus(micro_batches):
    count(micro_batches, 6144, 1, 12288, 8, 8, "a batch of 6144 on 12288 GPUs, tp 8, pp 8")


def check_data_parallel_only(micro_batches):
    count(micro_batches, 64, 4, 8, 1, 1, "a batch of 64 on 8 GPUs, 4 at a time")


def check_other_sizes(micro_batches):
    for batch, size, dp, tp, pp in [(60, 2, 5, 2, 3), (60, 5, 2, 3, 2), (48, 3, 4, 1, 7),
                                    (42, 7, 3, 4, 1), (6, 6, 1, 2, 5)]:  # fmt: skip
        what = f"a batch of {batch} on {dp * tp * pp} GPUs, tp {tp}, pp {pp}, {size} at a time"
        count(micro_batches, batch, size, dp * tp * pp, tp, pp, what)


# ---- global_grad_norm


def root(squares):
    return np.sqrt(np.float64(sum(squares)))


def norm(global_grad_norm, stages, what, dp=1):
    """stages: for each of pp a list of (kind, the arrays of its tp ranks)."""
    pp, tp = len(stages), len(stages[0][0][1])
    mesh, by_rank = Mesh(dp=dp, pp=pp, tp=tp), []
    for _ in range(dp):
        by_rank += [[(parts[t], kind) for kind, parts in stage]
                    for stage in stages for t in range(tp)]  # fmt: skip

    def square(stage, t, kinds):
        return sum((parts[t] ** 2).sum() for kind, parts in stage if kind in kinds)

    def all_of(stage, kinds=("split",)):  # each once
        own = sum(square(stage, t, kinds) for t in range(tp))
        return own + square(stage, 0, ("whole",))

    each = ("split", "whole", "split copy")
    right = root(map(all_of, stages))
    n, ranks = dp * pp * tp, [(p, t) for _ in range(dp) for p in range(pp) for t in range(tp)]
    copies = sum(all_of(stage, ("split", "split copy")) for stage in stages)
    doubled = sum(square(s, t, ("split", "whole")) for s in stages for t in range(tp))
    everything = sum(square(s, t, each) for s in stages for t in range(tp))
    mistakes = {
        "whole arrays are counted once for each tp rank: they have the same gradient on each":
            [root([doubled])] * n,
        "the copy of the tied embedding is counted: the first stage has it already":
            [root([copies])] * n,
        "whole arrays are counted tp times, and the copy of the embedding, too":
            [root([everything])] * n,
        "only the own stage: sum over pp, too": [root([all_of(stages[p])]) for p, t in ranks],
        "only the own stage, with the copy": [
            root([all_of(stages[p], ("split", "split copy"))]) for p, t in ranks],
        "only the own parts: where is the sum over ranks?": [
            root([square(stages[p], t, each)]) for p, t in ranks],
        "that is the square: where is the root?": [right**2] * n,
        "norms of ranks were added: their squares add up, the root comes last": [sum(
            root([square(s, t, ("split", "whole") if t == 0 else ("split",))])
            for s in stages for t in range(tp))] * n,
        "norms of stages were added: their squares add up": [
            sum(root([all_of(s)]) for s in stages)] * n,
        "whole arrays are not counted at all":
            [root(square(s, t, ("split",)) for s in stages for t in range(tp))] * n,
        "whole arrays are counted on the first stage only: every stage has its own": [root(
            [*(square(s, t, ("split",)) for s in stages for t in range(tp)),
             square(stages[0], 0, ("whole",))])] * n,
    }  # fmt: skip
    got = on_ranks(lambda rank, grads: global_grad_norm(grads, rank.pp, rank.tp), mesh, by_rank)
    mistakes = {text: [np.asarray(x) for x in wrong] for text, wrong in mistakes.items()}
    same(got, [np.asarray(right)] * n, f"the norm, {what}", mistakes, by="rank")
    for device in mesh.devices:
        sent = sum(device.sent.values())
        assert sent <= 4 * 8 * 4, (
            f"the norm, {what}: {device} has sent {sent} bytes: squares are summed at home, and "
            "only numbers are sent"
        )


def numbers(kind, *parts):
    return kind, [np.array([float(x)]) for x in parts]


STAGES = [
    [numbers("split", 2, 2), numbers("whole", 4, 4), numbers("split", 1, 3)],
    [numbers("split", 5, 1), numbers("split copy", 1, 3)],
]


def check_two_by_two(global_grad_norm):
    norm(global_grad_norm, STAGES, "2 stages of 2 ranks, with a copy of the embedding")
    norm(global_grad_norm, STAGES, "2 copies of 2 stages of 2 ranks", dp=2)


def check_without_copies(global_grad_norm):
    norm(global_grad_norm, [STAGES[0], STAGES[1][:1]], "2 stages of 2 ranks, without copies")


def check_one_stage(global_grad_norm):
    norm(global_grad_norm, STAGES[:1], "1 stage of 2 ranks")


def check_one_rank(global_grad_norm):
    norm(global_grad_norm, [[numbers("split", 3), numbers("whole", 4)]], "1 rank, [3] and [4]")


def check_other_meshes(global_grad_norm):
    for pp, tp in [(1, 1), (1, 3), (3, 1), (2, 3), (3, 2), (4, 2)]:
        wte, stages = list(draw(tp, 5, 3)), []
        for p in range(pp):
            whole = draw(7, seed=p)
            stage = [("split", list(draw(tp, 2, 4, seed=p))), ("whole", [whole] * tp)]
            if p == 0:
                stage.insert(1, ("split", wte))
            elif p == pp - 1:
                stage.insert(0, ("split copy", wte))
                stage.append(("whole", [draw(2, seed=99)] * tp))
            stages.append(stage)
        norm(global_grad_norm, stages, f"{pp} stages of {tp} ranks")
