"""The checks of lesson 10."""

import numpy as np

from gpt_numpy.mesh import Mesh
from lessons.checking import brief, on_ranks, same

# ---- bubble_fraction


def idle(bubble_fraction, pp, m, v=1):
    busy = m * v  # passes through a chunk and back, of which pp - 1 are missed
    mistakes = {
        "that is idle over busy time: asked is its share of the whole step": (pp - 1) / busy,
        "a stage does not wait for itself: the pipeline fills in pp - 1 passes": pp / (m + pp),
        "interleaving shortens the bubble: it is filled with smaller chunks": (pp - 1)
        / (m + pp - 1),
        "not the fraction shrinks v times, but the idle time": (pp - 1) / (m + pp - 1) / v,
        "that is the share in which it is busy": busy / (busy + pp - 1),
        "that is one of the two directions: a stage is idle when it fills and when it drains, and "
        "busy forward and backward": (pp - 1) / (2 * busy + pp - 1),
        "that is the idle time of all stages together": pp * (pp - 1) / (busy + pp - 1),
        "a chunk more does not make micro-batches fewer": (pp - 1) / (m / v + pp - 1),
    }
    what = f"the bubble of {pp} stages, {m} micro-batches, {v} virtual stages"
    same(bubble_fraction(pp, m, v), (pp - 1) / (busy + pp - 1), what, mistakes)


def check_four_stages(bubble_fraction):
    same(bubble_fraction(4, 8), 3 / 11, "the bubble of 4 stages, 8 micro-batches",
         {"that is idle over busy time: asked is its share of the whole step": 3 / 8})  # fmt: skip
    for pp, m in [(4, 8), (2, 5), (3, 3), (8, 3)]:
        idle(bubble_fraction, pp, m)


def check_one_micro_batch(bubble_fraction):
    for pp in (4, 2, 7):
        idle(bubble_fraction, pp, 1)


def check_one_stage_is_never_idle(bubble_fraction):
    for m in (1, 8):
        idle(bubble_fraction, 1, m)


def check_interleaved(bubble_fraction):
    for pp, m, v in [(4, 8, 2), (4, 4, 3), (8, 32, 6), (3, 6, 5)]:
        idle(bubble_fraction, pp, m, v)


# ---- one_f_one_b


def checked(actions, m, what):
    """The actions as ("F" or "B", micro-batch), if they are all that a stage has to do."""
    if not isinstance(actions, (list, tuple)):
        raise AssertionError(f"{what}: expected a list of Actions, got {brief(actions)}")
    for a in actions:
        if not isinstance(a, (list, tuple)) or len(a) != 3 or a[0] not in ("F", "B") or a[2] != 0:
            raise AssertionError(
                f"{what}: expected Actions such as Action('F', 0), of chunk 0, got {brief(a)}"
            )
    plain = [(kind, int(i)) for kind, i, _ in actions]
    for kind in "FB":
        done = sorted(i for k, i in plain if k == kind)
        all_of = f"all of 0 to {m - 1} once, and a warm-up is at most so many"
        told = f"{what}: the micro-batches that go through a {kind} ({all_of})"
        same(done, list(range(m)), told)
    return plain


def text(plain):
    return " ".join(f"{kind}{i}" for kind, i in plain)


def order(m, warm_up):
    """As moments: F i at 2 (i - warm_up), B i at 2 i + 1."""
    places = {("F", i): 2 * (i - warm_up) for i in range(m)}
    places |= {("B", i): 2 * i + 1 for i in range(m)}
    return sorted(places, key=places.get)


def in_order(one_f_one_b, stage, pp, m):
    what = f"stage {stage} of {pp}, {m} micro-batches"
    right = order(m, min(m, pp - 1 - stage))
    last = iter(range(m - 1, -1, -1))
    mistakes = {
        "too many F before the first B: as many as stages follow this one (not the first)": order(
            m, min(m, pp - 1)
        ),
        "one F too many before the first B: in turn, it is F and then B": order(
            m, min(m, pp - stage)
        ),
        "that is GPipe, which holds every micro-batch: after the warm-up F and B take turns": [
            *[("F", i) for i in range(m)],
            *[("B", i) for i in range(m)],
        ],
        "later stages need fewer F before a gradient can come, not more": order(m, min(m, stage)),
        "B before F: in turn, it is F and then B (or one F too few in the warm-up: pp - 1 - stage "
        "stages follow)": order(m, min(m, pp - 2 - stage)),
        "no warm-up: the gradient has to come back through the stages that follow": order(m, 0),
    }
    mistakes = {hint: text(actions) for hint, actions in mistakes.items()}
    mistakes["the B come in the order of the F: micro-batch 0 has its gradient first"] = text(
        (kind, i if kind == "F" else next(last)) for kind, i in right
    )
    got = checked(one_f_one_b(stage, pp, m), m, what)
    same(text(got), text(right), what, mistakes)


def check_first_stage(one_f_one_b):
    for pp, m in [(3, 5), (3, 4), (2, 3), (3, 7), (4, 8), (5, 6)]:  # 4: GPipe's is one F too many
        in_order(one_f_one_b, 0, pp, m)


def check_last_stage(one_f_one_b):
    for pp, m in [(3, 4), (2, 3), (5, 6)]:
        in_order(one_f_one_b, pp - 1, pp, m)


def check_stages_between(one_f_one_b):
    for pp, m in [(3, 4), (4, 8), (5, 5), (6, 9)]:
        for stage in range(1, pp - 1):
            in_order(one_f_one_b, stage, pp, m)


def check_fewer_micro_batches_than_stages(one_f_one_b):
    for pp, m in [(4, 2), (4, 1), (7, 3), (3, 3)]:
        for stage in range(pp):
            in_order(one_f_one_b, stage, pp, m)


def check_one_stage(one_f_one_b):
    for m in (1, 2, 5):
        in_order(one_f_one_b, 0, 1, m)


def play(plans, what):
    """All stages at work, F taking 1 s and B 2 s -> when the last one ends, most held by stage."""
    pp, ends, at, clock = len(plans), {}, [0] * len(plans), [0] * len(plans)
    held, peaks = [0] * pp, [0] * pp
    while any(at[s] < len(plans[s]) for s in range(pp)):
        moved = False
        for s in range(pp):
            while at[s] < len(plans[s]):
                kind, i = plans[s][at[s]]
                other = s - 1 if kind == "F" else s + 1
                needs = [("F", i, s)] * (kind == "B") + [(kind, i, other)] * (0 <= other < pp)
                if any(need not in ends for need in needs):
                    break
                start = max([clock[s], *(ends[need] for need in needs)])
                clock[s] = ends[kind, i, s] = start + (1 if kind == "F" else 2)
                held[s] += 1 if kind == "F" else -1
                peaks[s], at[s], moved = max(peaks[s], held[s]), at[s] + 1, True
        if not moved:
            stuck = [f"stage {s} at {text([plans[s][at[s]]])}" for s in range(pp)
                     if at[s] < len(plans[s])]  # fmt: skip
            raise AssertionError(
                f"{what}: it never ends, {', '.join(stuck)} wait for each other. A gradient comes "
                "back only after the stages that follow had their F"
            )
    return max(clock), peaks


def check_runs_to_the_end(one_f_one_b):
    for pp, m in [(4, 8), (3, 5), (2, 1), (5, 5)]:
        what = f"{pp} stages, {m} micro-batches, F 1 s, B 2 s"
        plans = [checked(one_f_one_b(s, pp, m), m, f"stage {s} of {pp}") for s in range(pp)]
        seconds, held = play(plans, what)
        mistakes = {
            "that is GPipe's: it holds them all": [m] * pp,
            "one F too many before the first B": [min(m, pp - s + 1) for s in range(pp)],
        }
        right = [min(m, pp - s) for s in range(pp)]
        same(held, right, f"{what}: micro-batches held at most", mistakes, by="stage")
        same(seconds, 3 * (m + pp - 1), f"{what}: seconds")


def check_several_chunks_are_refused(one_f_one_b):
    try:
        one_f_one_b(0, 2, 4, 2)
    except ValueError as error:
        if "interleaved" in str(error):
            return
        raise AssertionError(f"the ValueError does not name interleaved: {error}") from error
    raise AssertionError("virtual_stages = 2 was taken: raise a ValueError")


# ---- pipeline_gradient

WIDTHS = (3, 5, 2, 7, 4)


class Messages:
    """A group of which only send, recv, isend and irecv may be used."""

    CALLS = ("send", "recv", "isend", "irecv")

    def __init__(self, group, shapes):  # shapes: a list, to which those of sent arrays go
        self.rank, self.size, self.group, self.shapes = group.rank, group.size, group, shapes

    def __getattr__(self, name):
        if name not in self.CALLS:
            raise AssertionError(f"pp.{name} was used: stages send and receive, nothing else")
        call = getattr(self.group, name)
        if "recv" in name:
            return call

        def noted(x, *args, **options):
            self.shapes.append(getattr(x, "shape", ()))
            return call(x, *args, **options)

        return noted


def model(stages, rows, dtype=np.float64):
    """Matrices, and inputs and targets of micro-batches with so many rows each."""
    rng, widths = np.random.default_rng(stages), WIDTHS[: stages + 1]
    w = [rng.standard_normal(shape).astype(dtype) for shape in zip(widths, widths[1:])]
    xs = [rng.standard_normal((n, widths[0])).astype(dtype) for n in rows]
    ts = [rng.standard_normal((n, widths[-1])).astype(dtype) for n in rows]
    return w, xs, ts


def by_hand(w, xs, ts, totals, keep=None, partner=None):
    """[micro-batch][stage] gradients on one device, each loss divided by its total.

    keep: the micro-batch whose activations are used, instead of its own; partner: whose loss.
    """
    found = []
    for i in range(len(xs)):
        acts, ys = [xs[i if keep is None else keep]], [xs[i if partner is None else partner[i]]]
        for a in w:
            acts.append(acts[-1] @ a)
            ys.append(ys[-1] @ a)
        dy = (ys[-1] - ts[i if partner is None else partner[i]]) / totals[i]
        grads = []
        for a, x in zip(reversed(w), reversed(acts[:-1])):
            grads.insert(0, x.T @ dy)
            dy = dy @ a.T
        found.append(grads)
    return found


def summed(found):
    return [sum(parts) for parts in zip(*found)]


def misled(w, xs, ts):
    """What misunderstandings give, {hint: gradients by stage}."""
    rows, m = [len(x) for x in xs], len(xs)
    total, ones = sum(rows), [1] * m
    right = by_hand(w, xs, ts, [total] * m)
    running = [0] * len(w)
    for parts in by_hand(w, xs, ts, ones):
        running = [(r + part) / total for r, part in zip(running, parts)]
    undivided = f"that is not divided by total, the {total} rows of all micro-batches"
    if set(rows) == {1}:  # then these two give the same
        undivided += ", or each only by its own rows"
    found = {
        undivided: summed(by_hand(w, xs, ts, ones)),
        "a mean of the micro-batches' means: rows count alike, whichever micro-batch they are in":
            summed(by_hand(w, xs, ts, [n * m for n in rows])),
        "divided by the number of micro-batches, not by the rows in them": summed(
            by_hand(w, xs, ts, [m] * m)
        ),
        "each micro-batch is divided by its own rows: total is that of all of them": summed(
            by_hand(w, xs, ts, rows)
        ),
        "the running sum is divided each time: divide once": running,
        "only the last micro-batch's gradient is there: they add up": right[-1],
        "only the first micro-batch's gradient is there: they add up": right[0],
        "that is minus the gradient: dy is y - t": [-g for g in summed(right)],
        "divided by the outputs' elements: total counts rows": summed(
            by_hand(w, xs, ts, [total * ts[0].shape[1]] * m)
        ),
        "dy of (y - t)**2 / 2 is y - t, not twice that": [2 * g for g in summed(right)],
    }  # fmt: skip
    if len(set(rows)) == 1:
        totals = [total] * m
        found[
            "one micro-batch's activations are used for all: a stage has to keep each until its "
            "backward pass"
        ] = summed(by_hand(w, xs, ts, totals, keep=m - 1))
        found[
            "activations of one micro-batch, a gradient of another: keep them by micro-batch"
        ] = summed(by_hand(w, xs, ts, totals, partner=range(m - 1, -1, -1)))
    return found


def step(pipeline_gradient, w, xs, ts, what, right=None, shapes=None):
    """Run it, refuse wrong gradients; the mesh has the meters, shapes[stage] what was sent."""
    n, nothing = len(w), [None] * len(xs)
    mesh, shapes = Mesh(pp=n), [[] for _ in w] if shapes is None else shapes
    got = on_ranks(
        lambda rank, *args: pipeline_gradient(Messages(rank.pp, shapes[rank.rank]), *args),
        mesh,
        w,
        [xs] + [nothing] * (n - 1),
        [nothing] * (n - 1) + [ts],
    )
    total = sum(len(x) for x in xs)
    right = right or summed(by_hand(w, xs, ts, [total] * len(xs)))
    same(got, right, what, misled(w, xs, ts), by="stage")
    return mesh


def numbers(*values):
    return [np.array([[float(value)]]) for value in values]


def check_two_stages_of_a_number_each(pipeline_gradient):
    what, right = "w 2 and 3, x 1, 2 and -1, t 5, 10 and 0", numbers(11, 22 / 3)
    arrays = numbers(2, 3), numbers(1, 2, -1), numbers(5, 10, 0)
    step(pipeline_gradient, *arrays, what, right)


def check_equal_micro_batches(pipeline_gradient):
    step(pipeline_gradient, numbers(2, 3), numbers(1, 1), numbers(5, 5), "w 2 and 3, twice x 1")


def check_a_single_micro_batch(pipeline_gradient):
    for n in (2, 3):
        step(pipeline_gradient, *model(n, [3]), f"{n} stages, one micro-batch of 3 rows")


def check_stages_of_different_widths(pipeline_gradient):
    for n in (2, 3, 4):
        step(pipeline_gradient, *model(n, [2] * 5), f"{n} stages, 5 micro-batches of 2 rows")


def check_uneven_micro_batches(pipeline_gradient):
    for n, rows in [(2, [1, 4]), (3, [3, 1, 2, 5]), (4, [2, 6])]:
        step(pipeline_gradient, *model(n, rows), f"{n} stages, micro-batches of {rows} rows")


def check_one_micro_batch_at_a_time(pipeline_gradient):
    for n, rows in [(2, [1, 4]), (3, [2, 2, 2]), (3, [3, 1, 2, 5])]:
        shapes = [[] for _ in range(n)]
        what = f"{n} stages, micro-batches of {rows} rows"
        step(pipeline_gradient, *model(n, rows), what, shapes=shapes)
        for stage, sent in enumerate(shapes):
            got = sorted(shape[0] if shape else 1 for shape in sent)
            right = sorted(rows * ((stage > 0) + (stage < n - 1)))
            all_in_one = {
                "that is one pass of all rows, in which a stage waits for the whole batch of the "
                "stage before: it is no pipeline": [sum(rows)] * (len(right) // len(rows)),
            }  # fmt: skip
            same(got, right, f"{what}: rows of the arrays that stage {stage} sends", all_in_one)


def check_one_stage_has_no_neighbours(pipeline_gradient):
    step(pipeline_gradient, *model(1, [2, 1, 3]), "one stage, micro-batches of [2, 1, 3] rows")


def check_float32_stays_float32(pipeline_gradient):
    arrays = model(3, [2, 1], np.float32)
    step(pipeline_gradient, *arrays, "3 stages of float32")


def check_bytes_sent_by_each_stage(pipeline_gradient):
    rows = [2, 1, 4]
    for n in (2, 3, 4):
        mesh = step(pipeline_gradient, *model(n, rows), f"{n} stages")
        sent = [device.sent["pp"] for device in mesh.devices]
        outputs = [8 * sum(rows) * width for width in WIDTHS[1:n]]
        right = [y + dx for y, dx in zip([*outputs, 0], [0, *outputs])]
        if sent != right:
            raise AssertionError(
                f"bytes sent by {n} stages: {sent}, expected {right}: once per micro-batch each "
                "output goes on and each gradient of an input goes back, and nothing else"
            )
