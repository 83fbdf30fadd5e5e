"""Groups against NumPy over all ranks' arrays, closed forms, and wrong programs."""

import signal
import threading
import time

import numpy as np
import pytest

from gpt_numpy.device import Device
from gpt_numpy.mesh import CommunicationError, DeadlockError, Mesh, StandIn, run

ALGORITHMS = ["naive", "ring"]
SIZES = [1, 2, 3, 4, 7, 8]


def no_rank_is_left():
    return not [thread for thread in threading.enumerate() if thread.name.startswith("rank")]


def arrays(n, shape, dtype="float64"):
    return [np.random.default_rng(i).standard_normal(shape).astype(dtype) for i in range(n)]


def put(rank, x):
    return rank.device.put(x)


def numbers(x):
    return [numbers(y) for y in x] if isinstance(x, list) else x.numpy()


CALLS = {  # what a rank calls, and what rank i should get, of all ranks' x
    "all_reduce": (lambda g, x: g.all_reduce(x), lambda xs, i: np.sum(xs, axis=0)),
    "all_reduce max": (lambda g, x: g.all_reduce(x, op="max"), lambda xs, i: np.max(xs, axis=0)),
    "all_reduce min": (lambda g, x: g.all_reduce(x, op="min"), lambda xs, i: np.min(xs, axis=0)),
    "all_gather": (lambda g, x: g.all_gather(x), lambda xs, i: np.concatenate(xs)),
    "all_gather axis": (
        lambda g, x: g.all_gather(x, axis=-1),
        lambda xs, i: np.concatenate(xs, axis=1),
    ),
    "all_gather uneven": (
        lambda g, x: g.all_gather(x[: g.rank]),
        lambda xs, i: np.concatenate([x[:j] for j, x in enumerate(xs)]),
    ),
    "reduce_scatter": (
        lambda g, x: g.reduce_scatter(x),
        lambda xs, i: np.array_split(np.sum(xs, axis=0), len(xs))[i],
    ),
    "reduce_scatter axis": (
        lambda g, x: g.reduce_scatter(x, axis=1),
        lambda xs, i: np.array_split(np.sum(xs, axis=0), len(xs), axis=1)[i],
    ),
    "reduce_scatter max": (
        lambda g, x: g.reduce_scatter(x, op="max"),
        lambda xs, i: np.array_split(np.max(xs, axis=0), len(xs))[i],
    ),
    "all_to_all": (
        lambda g, x: g.all_to_all(x),
        lambda xs, i: np.concatenate([np.array_split(x, len(xs))[i] for x in xs]),
    ),
    "all_to_all join": (
        lambda g, x: g.all_to_all(x[:, : x.shape[1] // g.size * g.size], axis=1, join=0),
        lambda xs, i: np.concatenate(
            [x[:, (k := x.shape[1] // len(xs)) * i : k * (i + 1)] for x in xs]
        ),
    ),
    "all_to_all list": (
        lambda g, x: g.all_to_all([x[j:] for j in range(g.size)]),
        lambda xs, i: [x[i:] for x in xs],
    ),
    "broadcast": (
        lambda g, x: g.broadcast(x if g.rank == g.size - 1 else None, src=g.size - 1),
        lambda xs, i: xs[-1],
    ),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_collectives_give_what_numpy_gives_on_every_rank(name, n, algorithm):
    call, oracle = CALLS[name]
    xs = arrays(n, (10, 9))

    def program(rank):
        x = put(rank, xs[rank.rank])
        before = x.numpy()
        y, plain = call(rank.tp, x), call(rank.tp, xs[rank.rank])
        assert np.array_equal(x.numpy(), before)
        shaped = call(rank.tp, rank.device.empty(x.shape, "fp32"))
        for part in shaped if isinstance(shaped, list) else [shaped]:
            assert not part.has_numbers and part.dtype == np.float32 and part.device is rank.device
        return (
            numbers(y),
            plain,
            [p.shape for p in (shaped if isinstance(shaped, list) else [shaped])],
        )

    for i, (y, plain, shapes) in enumerate(run(program, Mesh(tp=n, algorithm=algorithm))):
        expected = oracle(xs, i)
        many = isinstance(expected, list)
        for a, b, c, shape in zip(
            *([y, plain, expected] if many else [[y], [plain], [expected]]), shapes
        ):
            assert isinstance(b, np.ndarray) and a.dtype == b.dtype == c.dtype
            assert a.shape == b.shape == c.shape == shape
            np.testing.assert_allclose(a, c, rtol=1e-10, atol=1e-12)
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_results_are_new_arrays_and_the_same_bits_on_every_rank_and_in_every_run(algorithm):
    xs = arrays(5, 11, "float32")

    def program(rank):
        x = put(rank, xs[rank.rank])
        y = rank.world.all_reduce(x)
        held = rank.device.held
        y += rank.rank  # must not be seen by the others
        rank.world.barrier()
        assert np.array_equal(x.numpy(), xs[rank.rank]) and held == 2 * x.nbytes
        return (y - rank.rank).numpy(), rank.world.all_reduce(x).numpy()

    def plain(rank):
        x = np.ones(3)
        y = rank.world.broadcast(x)
        y += 1
        for part in rank.world.all_to_all([x] * 5):
            part += 1
        rank.world.barrier()
        return x.sum() + y.sum()

    assert run(plain, Mesh(dp=5, algorithm=algorithm)) == [9.0] * 5
    one, two = [run(program, Mesh(dp=5, algorithm=algorithm)) for _ in range(2)]
    assert len({y.tobytes() for _, y in one + two}) == 1
    np.testing.assert_allclose([y for y, _ in one], [y for _, y in one], rtol=1e-5)


def bytes_by_rank(name, n, algorithm, shape=(10, 9)):
    mesh = Mesh(tp=n, algorithm=algorithm)
    run(lambda rank: CALLS[name][0](rank.tp, rank.device.empty(shape, "fp32")), mesh)
    return [(gpu.sent["tp"], gpu.received["tp"]) for gpu in mesh.devices]


@pytest.mark.parametrize("shape", [(10, 9), (8, 8), (1, 1)])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_the_naive_form_is_metered_as_the_ring_really_sends(name, n, shape):
    assert bytes_by_rank(name, n, "naive", shape) == bytes_by_rank(name, n, "ring", shape)


@pytest.mark.parametrize("n", SIZES)
def test_bytes_sent_equal_the_closed_forms(n):
    s = 4 * 10 * 9  # bytes that each rank holds; gathered, they are n times as many
    in_all = {name: sum(sent for sent, _ in bytes_by_rank(name, n, "naive")) for name in CALLS}
    assert in_all["all_reduce"] == 2 * (n - 1) * s
    assert in_all["reduce_scatter"] == in_all["reduce_scatter axis"] == (n - 1) * s
    assert in_all["all_gather"] == (n - 1) * n * s
    assert in_all["all_gather uneven"] == (n - 1) * sum(36 * min(i, 10) for i in range(n))
    assert in_all["broadcast"] == (n - 1) * s
    even = bytes_by_rank("all_to_all", n, "naive", (8 * n, 2))
    assert even == [(4 * 16 * (n - 1),) * 2] * n  # (n - 1) / n of what each holds
    per_rank = bytes_by_rank("all_reduce", n, "ring", (n, 3))
    assert per_rank == [(2 * (n - 1) * 12,) * 2] * n  # 2 (n - 1) / n of the buffer
    for name in CALLS:
        assert in_all[name] == sum(received for _, received in bytes_by_rank(name, n, "naive"))


def test_groups_follow_the_grid_and_meter_by_name():
    mesh = Mesh(dp=2, pp=3, tp=2)
    assert mesh.grid.tolist() == np.arange(12).reshape(2, 3, 2).tolist()

    def program(rank):
        x = np.array([float(rank.rank)])
        sums = [float(g.all_reduce(x)[0]) for g in (rank.dp, rank.pp, rank.tp, rank.world)]
        ends = [mesh.along(rank.rank, "pp")[i] for i in (0, -1)]
        if rank.rank in ends:
            sums.append(float(rank.group("ends", ends).all_reduce(x)[0]))
        return sums, rank.dp.rank, rank.pp.rank, rank.tp.rank, rank.tp.ranks, str(rank)

    results = run(program, mesh)
    for i, (sums, dp, pp, tp, ranks, name) in enumerate(results):
        d, p, t = np.argwhere(mesh.grid == i)[0]
        assert (dp, pp, tp) == (d, p, t) and ranks == tuple(mesh.grid[d, p])
        assert sums[:4] == [
            mesh.grid[:, p, t].sum(),
            mesh.grid[d, :, t].sum(),
            mesh.grid[d, p].sum(),
            66,
        ]
        assert name == f"rank {i} (dp {d}, pp {p}, tp {t})"
        if p != 1:
            assert sums[4] == mesh.grid[d, 0, t] + mesh.grid[d, 2, t]
    assert mesh.along(0, "pp", "tp") == [0, 1, 2, 3, 4, 5]
    assert set(mesh.devices[0].sent) == {"dp", "pp", "tp", "world", "ends"}


@pytest.mark.parametrize("bad", [{"dp": 0}, {"tp": -1}, {"algorithm": "tree"}])
def test_a_mesh_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError):
        Mesh(**bad)


def test_ranks_print_in_the_same_order_every_time(capsys):
    def program(rank):
        for i in range(3):
            print(rank.rank, i)
            rank.tp.barrier()
            if rank.rank == 2:
                rank.dp.barrier()

    outputs = set()
    for _ in range(3):
        run(program, Mesh(dp=1, tp=4))
        outputs.add(capsys.readouterr().out)
    assert len(outputs) == 1 and len(outputs.pop().split("\n")) == 13


def test_asynchronous_calls_may_be_waited_for_in_any_order():
    def program(rank):
        other, x = 1 - rank.rank, np.array([1.0 + rank.rank])
        works = [
            rank.tp.irecv(other),
            rank.tp.isend(x, other),
            rank.tp.irecv(other),
            rank.tp.isend(10 * x, other),
            rank.tp.all_reduce(x, async_op=True),
            rank.tp.all_gather(x, async_op=True),
            rank.tp.all_to_all(np.arange(4.0), async_op=True),
        ]
        order = [6, 2, 0, 5, 3, 4, 1] if rank.rank else [0, 1, 2, 3, 4, 5, 6]
        results = {i: works[i].wait() for i in order}
        assert results[1] is None and works[0].wait() is results[0]  # waiting again is harmless
        return [results[i].tolist() for i in (0, 2, 4, 5, 6)]

    for algorithm in ALGORITHMS:
        one, two = run(program, Mesh(tp=2, algorithm=algorithm))
        assert one == [[2], [20], [3], [1, 2], [0, 1, 0, 1]]
        assert two == [[1], [10], [3], [1, 2], [2, 3, 2, 3]]


def test_messages_between_two_ranks_keep_their_order_and_a_send_waits():
    seen = []

    def program(rank):
        if rank.rank == 0:
            for i in range(3):
                rank.pp.send(put(rank, np.array([i])), 1)
                seen.append(f"sent {i}")
        else:
            got = []
            for i in range(3):
                seen.append(f"receive {i}")
                got.append(int(rank.pp.recv(0)[0]))
            return got

    assert run(program, Mesh(pp=2))[1] == [0, 1, 2]
    assert all(seen.index(f"receive {i}") < seen.index(f"sent {i}") for i in range(3))


def same_call(rank):
    """(The line of this call is in the messages below.)"""
    rank.tp.all_reduce(np.ones(4))


WRONG = {
    "shapes": (lambda r: r.tp.all_reduce(np.ones(2 + r.rank)), ["[2]", "[3]", "all_reduce"]),
    "dtypes": (
        lambda r: r.tp.all_reduce(np.ones(2, f"f{4 + 4 * r.rank}")),
        ["float32", "float64"],
    ),
    "operations": (
        lambda r: r.tp.all_reduce(np.ones(2), op=["sum", "max"][r.rank]),
        ["op sum", "op max"],
    ),
    "calls": (
        lambda r: (r.tp.all_gather if r.rank else r.tp.all_reduce)(np.ones(4)),
        ["rank 0 calls all_reduce [4] float64", "rank 1 calls all_gather [4] float64"],
    ),
    "axes": (lambda r: r.tp.all_gather(np.ones((2, 2)), axis=r.rank), ["axis 0", "axis 1"]),
    "other axis": (lambda r: r.tp.all_gather(np.ones((2, 2 + r.rank))), ["[2, 2]", "[2, 3]"]),
    "roots": (lambda r: r.tp.broadcast(np.ones(2), src=r.rank), ["src 0", "src 1"]),
    "tags": (
        lambda r: r.tp.recv(0, tag="b0") if r.rank else r.tp.send(np.ones(2), 1, tag="f1"),
        ["send [2] float64 'f1'", "'b0'", "the tags differ"],
    ),
    "itself": (lambda r: r.tp.send(np.ones(2), r.rank), ["rank 0 talks to itself"]),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", WRONG)
def test_a_mismatch_is_one_error_that_names_ranks_calls_and_lines(name, algorithm):
    program, parts = WRONG[name]
    with pytest.raises(CommunicationError) as error:
        run(program, Mesh(tp=2, algorithm=algorithm))
    for part in [*parts, "test_mesh.py:"]:
        assert part in str(error.value)
    assert no_rank_is_left()


def ended(rank):
    if rank.rank != 1:
        same_call(rank)


def never_sent(rank):
    if rank.rank == 0:
        rank.tp.recv(2)


def circle(rank):
    rank.tp.send(np.ones(2), (rank.rank + 1) % 3)


def crossed(rank):
    groups = [rank.tp, rank.world]
    for group in groups if rank.rank else groups[::-1]:
        group.barrier()


DEADLOCKS = {
    ended: [
        "rank 0 waits for rank 1 (ended) in all_reduce [4] float64 (tp, op sum)",
        "rank 2 waits",
    ],
    never_sent: ["rank 0 waits for rank 2 (ended) in recv from rank 2"],
    circle: [f"rank {i} waits for rank {(i + 1) % 3} in send [2] float64" for i in range(3)],
    crossed: [
        "rank 0 waits for rank 1, rank 2 in barrier (world)",
        "rank 1 waits for rank 0 in barrier (tp)",
    ],
}


@pytest.mark.parametrize("program", DEADLOCKS)
def test_a_deadlock_is_one_error_that_says_who_waits_for_whom(program):
    with pytest.raises(DeadlockError) as error:
        run(program, Mesh(tp=3))
    for part in [*DEADLOCKS[program], "test_mesh.py:"]:
        assert part in str(error.value)
    assert no_rank_is_left()


def test_messages_name_the_line_of_the_program():
    line = same_call.__code__.co_firstlineno + 2
    with pytest.raises(DeadlockError, match=f"test_mesh.py:{line}$"):
        run(lambda rank: rank.rank or same_call(rank), Mesh(tp=2))


def one_f_one_b(rank, fused):
    """Two stages, four micro-batches, in 1F1B's order, where a send waits for its receive."""
    x = np.ones(3)
    if rank.pp.rank == 0:
        rank.pp.send(x, 1, tag="f0")
        for i in range(4):
            if i + 1 < 4:
                if fused:
                    work = rank.pp.isend(x, 1, tag=f"f{i + 1}")
                    rank.pp.recv(1, tag=f"b{i}")
                    work.wait()
                else:
                    rank.pp.send(x, 1, tag=f"f{i + 1}")
                    rank.pp.recv(1, tag=f"b{i}")
            else:
                rank.pp.recv(1, tag=f"b{i}")
    else:
        for i in range(4):
            rank.pp.recv(0, tag=f"f{i}")
            rank.pp.send(x, 0, tag=f"b{i}")
    return "done"


def test_a_naive_pipeline_order_is_a_deadlock_that_names_both_operations():
    with pytest.raises(DeadlockError) as error:
        run(one_f_one_b, Mesh(pp=2), False)
    assert "rank 0 waits for rank 1 in send [3] float64 'f1'" in str(error.value)
    assert "rank 1 waits for rank 0 in send [3] float64 'b0'" in str(error.value)
    assert run(one_f_one_b, Mesh(pp=2), True) == ["done", "done"]


@pytest.mark.parametrize(
    "left",
    [
        lambda r: r.rank or r.tp.isend(np.ones(2), 1),
        lambda r: r.rank or r.tp.irecv(1),
        lambda r: r.rank or r.tp.all_reduce(np.ones(2), async_op=True),
    ],
)
def test_what_was_begun_and_never_met_is_an_error_at_the_end(left):
    with pytest.raises(CommunicationError, match=r"rank 0 waits for rank 1 \(ended\)"):
        run(left, Mesh(tp=2))


def test_an_exception_on_one_rank_ends_the_run_and_is_raised_with_its_traceback():
    cleaned = []

    def fail(rank):
        raise KeyError("no such weight")

    def program(rank):
        try:
            rank.tp.barrier()
            if rank.rank == 3:
                fail(rank)
            rank.tp.barrier()
        finally:
            cleaned.append(rank.rank)

    with pytest.raises(KeyError) as error:
        run(program, Mesh(pp=2, tp=2, dp=1))
    assert [e.name for e in error.traceback][-2:] == ["program", "fail"]
    text = str(error.value) + "".join(getattr(error.value, "__notes__", []))
    assert "no such weight" in text and "on rank 3 (dp 0, pp 1, tp 1)" in text
    assert sorted(cleaned) == [0, 1, 2, 3] and no_rank_is_left()


def test_a_wrong_argument_is_refused_in_the_program():
    for call in (
        lambda g, x: g.send(x, 2),
        lambda g, x: g.recv(-1),
        lambda g, x: g.all_reduce(x, op="mean"),
        lambda g, x: g.broadcast(x, src=5),
        lambda g, x: g.all_to_all([x]),
    ):
        with pytest.raises(ValueError):
            run(lambda rank, call=call: call(rank.tp, np.ones(3)), Mesh(tp=2))
    with pytest.raises(ValueError, match="to_device"):
        run(lambda rank: rank.tp.all_reduce(Device("elsewhere").put(np.ones(3))), Mesh(tp=2))


def test_ctrl_c_ends_a_run_even_while_a_rank_computes():
    def program(rank):
        if rank.rank == 0:
            rank.tp.barrier()
        signal.raise_signal(signal.SIGINT)
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        run(program, Mesh(tp=2))
    assert no_rank_is_left()


def test_a_run_inside_a_run_is_one_of_its_own():
    def inner(rank, x):
        return float(rank.tp.all_reduce(np.array([x]))[0])

    def outer(rank):
        return sum(run(inner, Mesh(tp=3), rank.tp.all_reduce(np.array(1.0))))

    assert run(outer, Mesh(tp=2)) == [18.0, 18.0]


def test_the_callers_numpy_settings_hold_on_every_rank():
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        run(lambda rank: np.ones(1) / np.zeros(1), Mesh(tp=2))


def test_64_ranks_are_not_much_slower_per_rank_than_8():
    def program(rank):
        x = put(rank, np.ones(4))
        for _ in range(100):
            rank.world.all_reduce(x)

    def seconds_per_rank(n):
        start = time.process_time()
        run(program, Mesh(dp=n))
        return (time.process_time() - start) / n

    few, many = [min(seconds_per_rank(n) for _ in range(3)) for n in (8, 64)]
    assert many < 2 * few, (few, many)


class Cost:
    """Simple figures: a second a kernel; 100 bytes per second a link, and 0.1 seconds a step."""

    def __init__(self):
        self.asked = []

    def kernel(self, name, matmuls, flops, nbytes, dtype):
        return 1.0

    def collective(self, name, n, nbytes, ranks):
        self.asked.append((name, n, nbytes, list(ranks)))
        steps = {"all_reduce": 2 * (n - 1), "send": 1}.get(name, n - 1)
        return steps * (nbytes / (1 if name == "send" else n) / 100 + 0.1)


def test_a_collectives_cost_is_asked_for_the_whole_buffer():
    def program(rank):
        x = rank.device.empty((8, 2), "fp32")  # 64 bytes
        for g in (rank.tp,):
            (
                g.all_reduce(x),
                g.reduce_scatter(x),
                g.all_gather(x[:2]),
                g.all_to_all(x),
                g.broadcast(x),
            )
        rank.tp.send(x, 1) if rank.tp.rank == 0 else rank.tp.rank == 1 and rank.tp.recv(0)

    mesh = Mesh(pp=2, tp=4, cost=Cost())
    run(program, mesh)
    asked = [a for a in mesh.devices[0].cost.asked if a[3][0] >= 4]
    assert asked == [
        (name, 4, 64, [4, 5, 6, 7])
        for name in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
    ] + [("send", 2, 64, [4, 5])]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", [2, 4, 5])
def test_both_forms_take_a_rings_time(n, algorithm):
    def program(rank):
        return rank.tp.all_reduce(rank.device.empty(25 * n, "fp32")).ready

    mesh = Mesh(tp=n, cost=Cost(), algorithm=algorithm)
    adding = (
        (n - 1) * 1.0 if algorithm == "ring" else 0
    )  # the ring's sums are kernels, here of a second
    joining = 1.0 if algorithm == "ring" else 0
    expected = 2 * (n - 1) * (1.0 + 0.1) + adding + joining
    assert run(program, mesh) == pytest.approx([expected] * n)


@pytest.mark.parametrize("with_numbers", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_an_early_collective_and_a_late_use_overlap(overlap, with_numbers):
    def program(rank):
        x = rank.device.empty(
            100, "fp32"
        )  # all_reduce of 400 bytes on two ranks: 2 * (2 + 0.1) seconds
        if with_numbers:
            x = put(rank, np.ones(100, np.float32))
        rank.device.record = []
        y = x * 2  # 0 to 1
        if rank.rank == 1:
            y = y * 2  # 1 to 2: so the other one waits
        z = rank.tp.all_reduce(y)  # 2 to 6.2
        w = x + 1  # meanwhile, or after it
        u = z + w
        return (
            z.ready,
            w.ready,
            u.ready,
            rank.device.streams["compute"],
            rank.device.seconds["comm"],
        )

    one, two = run(program, Mesh(tp=2, cost=Cost(), overlap={"tp"} if overlap else ()))
    if overlap:
        assert one == pytest.approx((6.2, 2, 7.2, 7.2, 4.2)) and two == pytest.approx(
            (6.2, 3, 7.2, 7.2, 4.2)
        )
    else:
        assert one == two == pytest.approx((6.2, 7.2, 8.2, 8.2, 4.2))


def test_an_asynchronous_collective_runs_behind_kernels_until_it_is_waited_for():
    def program(rank):
        x = rank.device.empty(100, "fp32")
        work = rank.tp.all_reduce(x, async_op=True)  # 0 to 4.2
        y = x + 1 + 1 + 1  # 0 to 3
        z = work.wait()
        return y.ready, z.ready, (y + 1).ready, rank.device.record

    one, two = run(program, Mesh(tp=2, cost=Cost()))
    assert one == two == pytest.approx((3, 4.2, 5.2, None))


@pytest.mark.parametrize("overlap", [True, False])
def test_a_collective_waits_for_its_input_alone_if_its_group_overlaps(overlap):
    def program(rank):
        x = rank.device.empty(100, "fp32")
        x + 1  # 0 to 1; x does not need it
        return rank.tp.all_reduce(x).ready, rank.tp.all_reduce(x).ready  # one after the other

    mesh = Mesh(tp=2, cost=Cost(), overlap=["tp"] if overlap else [])
    assert run(program, mesh)[0] == pytest.approx((4.2, 8.4) if overlap else (5.2, 9.4))


def test_sends_and_receives_pair_up_in_time_and_go_both_ways_at_once():
    def program(rank):
        x, other = rank.device.empty(25, "fp32"), 1 - rank.rank  # 100 bytes: 1.1 seconds
        for _ in range(3 * rank.rank):
            x = x + 1  # rank 1 is three seconds late
        works = [
            rank.pp.isend(x, other),
            rank.pp.isend(x, other),
            rank.pp.irecv(other),
            rank.pp.irecv(other),
        ]
        return [work.wait().ready for work in works[2:]], rank.device.streams["compute"]

    one, two = run(program, Mesh(pp=2, cost=Cost()))
    assert one[0] == two[0] == pytest.approx([4.1, 5.2]) and one[1] == two[1] == pytest.approx(5.2)


def test_a_communication_inside_a_fused_kernel_is_refused():
    def program(rank):
        rank.device.fused = True
        x = rank.device.empty(3)
        with rank.device.kernel("mlp"):
            rank.tp.all_reduce(x * 2)

    with pytest.raises(CommunicationError, match="fused"):
        run(program, Mesh(tp=2))


@pytest.mark.parametrize(
    "name", [name for name in CALLS if name not in ("all_gather uneven", "broadcast")]
)
def test_a_stand_in_gives_meters_and_takes_what_a_real_group_does(name):
    call = CALLS[name][0]
    mesh = Mesh(tp=4, cost=Cost())
    results = run(lambda rank: call(rank.tp, rank.device.empty((8, 8), "bf16")), mesh)
    for i, (gpu, real) in enumerate(zip(mesh.devices, results)):
        alone = Device(i, Cost())
        y = call(StandIn("tp", range(4), i, alone), alone.empty((8, 8), "bf16"))
        if isinstance(y, list):  # everyone sends the same list
            assert [p.dtype for p in y] == [p.dtype for p in real]
        else:
            assert (y.shape, y.dtype, y.ready) == (real.shape, real.dtype, real.ready)
        if name != "all_to_all list":
            assert alone.sent == gpu.sent and alone.received == gpu.received
            assert alone.seconds == gpu.seconds and alone.streams == gpu.streams
