"""Device arrays against NumPy itself, and against shapes alone: same results, same meters."""

import gc
import time
import tracemalloc

import numpy as np
import pytest

from gpt_numpy import gpt2, layers
from gpt_numpy.checkpoint import flatten, gpt2_shapes, unflatten
from gpt_numpy.device import Device, DeviceArray, as_dtype, bfloat16
from gpt_numpy.optim import AdamW, clip

METERS = (
    "matmul_flops",
    "other_flops",
    "bytes_read",
    "bytes_written",
    "held",
    "peak",
    "kernels",
    "held_by_kind",
    "peak_by_kind",
)


def meters(device):
    return {name: getattr(device, name) for name in METERS}


def put_all(tree, put):
    """A nested dict or list with `put` applied to its arrays."""
    if isinstance(tree, dict):
        return {k: put_all(v, put) for k, v in tree.items()}
    return [put_all(v, put) for v in tree] if isinstance(tree, list) else put(tree)


EXPRESSIONS = {
    "add": lambda x, y, i, j: x + y,
    "broadcast": lambda x, y, i, j: x * y[:, :1] - y[0],
    "python scalars": lambda x, y, i, j: 2 - x * 0.5 + True,
    "numpy scalars": lambda x, y, i, j: x / np.sqrt(7.0) + np.float32(2),
    "0-d array": lambda x, y, i, j: x + np.array(2.0),
    "power": lambda x, y, i, j: x**2,
    "compare": lambda x, y, i, j: (x > y) & (x != 0) | (y <= 0.5),
    "unary": lambda x, y, i, j: -np.exp(np.tanh(abs(x))),
    "matmul": lambda x, y, i, j: x @ y.T,
    "matmul, broadcast": lambda x, y, i, j: x[None] @ y.reshape(2, 2, 6).swapaxes(-1, -2),
    "matmul, transposed": lambda x, y, i, j: np.matmul(x.T, y),
    "sum": lambda x, y, i, j: x.sum(),
    "sum, axis": lambda x, y, i, j: x.sum(axis=-1, keepdims=True) + x.sum(0),
    "sum, axes": lambda x, y, i, j: np.sum(x.reshape(2, 2, 6), axis=(0, -1)),
    "sum, dtype": lambda x, y, i, j: x.sum(dtype=np.float64),
    "sum of bools": lambda x, y, i, j: (x > 0).sum(axis=1),
    "sum of ints": lambda x, y, i, j: i.sum(),
    "sum, method": lambda x, y, i, j: np.add.reduce(x),
    "max": lambda x, y, i, j: x.max(axis=1) - x.min(axis=1),
    "mean": lambda x, y, i, j: x.mean(axis=-1, keepdims=True) * np.mean(x),
    "mean of ints": lambda x, y, i, j: i.mean(),
    "argmax": lambda x, y, i, j: x.argmax(axis=-1) + np.argmax(x),
    "slice": lambda x, y, i, j: x[1:3, ::2] * x[-1, 1],
    "new axis": lambda x, y, i, j: x[:, None] * y[None, ..., 1:2],
    "negative step": lambda x, y, i, j: x[::-1],
    "transpose": lambda x, y, i, j: x.T.reshape(2, 3, 4).transpose(2, 0, 1),
    "elementwise keeps the layout": lambda x, y, i, j: (x.T * 2).reshape(-1),
    "reshape copies": lambda x, y, i, j: x.swapaxes(0, 1).reshape(-1),
    "reshape a part": lambda x, y, i, j: x[:, :4].reshape(4, 2, 2).reshape(8, 2),
    "index": lambda x, y, i, j: x[i],
    "index, 2-d": lambda x, y, i, j: x[i.reshape(1, -1)],
    "index, pairs": lambda x, y, i, j: x[i, j],
    "index, columns": lambda x, y, i, j: x[:, j],
    "index, broadcast": lambda x, y, i, j: x[i[:, None], j],
    "index, apart": lambda x, y, i, j: x.reshape(2, 2, 6)[i % 2, :, j],
    "index, None": lambda x, y, i, j: x[None, i],
    "astype": lambda x, y, i, j: x.astype(np.float64) + x.astype("int8"),
    "copy": lambda x, y, i, j: np.copy(x.T),
    "where": lambda x, y, i, j: np.where(x > 0, x, -1.0) + np.where(y > 0, y, x),
    "concatenate": lambda x, y, i, j: np.concatenate([x, y[:1], x.astype(np.float64)]),
    "concatenate, axis": lambda x, y, i, j: np.concatenate([x, y[:, :2]], axis=1),
    "stack": lambda x, y, i, j: np.stack([x, y], axis=-1),
    "split": lambda x, y, i, j: np.split(x, 3, axis=-1)[2] - np.split(y, [2, 4], axis=1)[0],
    "array_split": lambda x, y, i, j: np.array_split(x, 4, axis=1)[1],
    "array_split, many": lambda x, y, i, j: np.array_split(x, 9)[8],
    "take_along_axis": lambda x, y, i, j: np.take_along_axis(x, i[:, None] % 6, axis=1),
    "expand and squeeze": lambda x, y, i, j: np.squeeze(np.expand_dims(x, (0, 3))),
    "moveaxis": lambda x, y, i, j: np.moveaxis(x.reshape(2, 2, 6), -1, 0),
    "broadcast_to": lambda x, y, i, j: np.broadcast_to(x[0], (3, 6)),
    "iterate": lambda x, y, i, j: sum(row for row in x),
    "zeros_like": lambda x, y, i, j: (
        np.zeros_like(x) + np.ones_like(i)[:, None] - np.full_like(x, 3)
    ),
    "zeros": lambda x, y, i, j: np.zeros((2, 3), x.dtype, like=x) + np.ones(3, like=x),
    "full": lambda x, y, i, j: np.full((2, 3), 7, like=x) + np.full(3, 0.5, x.dtype, like=x),
    "arange": lambda x, y, i, j: np.arange(2, 9, 3, like=x) * np.arange(3.0, like=x),
    "tri": lambda x, y, i, j: np.tri(3, like=x).sum() + np.tri(2, 4, 1, dtype=x.dtype, like=x),
    "asarray": lambda x, y, i, j: x[0] + np.asarray([1, 2, 3, 4, 5, 6], like=x),
    "functions": lambda x, y, i, j: (
        np.reshape(np.transpose(x), (2, -1)) * np.shape(x)[0] * np.ndim(x)
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_results_are_numpys_to_the_bit_and_shapes_alone_give_the_same_meters(name, dtype):
    rng = np.random.default_rng(1)
    given = (
        rng.standard_normal((4, 6)).astype(dtype),
        rng.standard_normal((4, 6)).astype(dtype),
        np.array([3, 1, 0, 1]),
        np.array([5, 0, 2, 2]),
    )
    expected = np.asarray(EXPRESSIONS[name](*given))
    one, two = Device(1), Device(2)
    if name == "asarray":  # brings numbers of its own, from outside
        two = one
    real = EXPRESSIONS[name](*map(one.put, given))
    assert isinstance(real, DeviceArray) and real.device is one
    assert real.dtype == expected.dtype and real.shape == expected.shape
    assert real.numpy().tobytes() == expected.tobytes()
    shaped = EXPRESSIONS[name](*[two.empty(x.shape, x.dtype) for x in given])
    assert not shaped.has_numbers
    assert (shaped.shape, shaped.dtype, shaped.nbytes) == (real.shape, real.dtype, real.nbytes)
    del shaped, real
    if two is not one:
        assert meters(one) == meters(two)
        assert one.held == 0


def in_place_operators(x, y, i):
    x += y
    x *= 2
    x -= y[0]
    x /= 3
    return x


def out(x, y, i):
    return np.exp(x, out=x)


def out_of_reduction(x, y, i):
    np.add.reduce(x, axis=0, out=x[0])
    return x


def set_items(x, y, i):
    x[1] = y[0]
    x[:, 2:4] = 0.5
    x[..., -1] = y[:, 1]
    x[i, 0] = y[0, :3]
    x[i] -= 1
    x[2, 3] = 7
    return x


def add_at(x, y, i):
    np.add.at(x, i, y[:3])
    np.add.at(x, (i, i), 1.0)
    return x


def views_share(x, y, i):
    x.reshape(-1)[3:5] = 9
    x.T[2] *= 2
    q, k = np.split(x, 2, axis=1)
    k[...] = q
    return x


@pytest.mark.parametrize(
    "change", [in_place_operators, out, out_of_reduction, set_items, add_at, views_share]
)
def test_in_place_operations_do_what_numpy_does_and_hold_nothing_new(change):
    rng = np.random.default_rng(2)
    given = rng.standard_normal((4, 6)), rng.standard_normal((4, 6)), np.array([3, 1, 3])
    one, two = Device(1), Device(2)
    a, b = [one.put(x) for x in given], [two.empty(x.shape, x.dtype) for x in given]
    held = one.held
    results = change(*a), change(*b)
    assert results[0] is a[0] and results[1] is b[0]
    assert results[0].numpy().tobytes() == change(*given).tobytes()
    assert meters(one) == meters(two)
    assert one.held == held


def test_mask_index_works_with_numbers_and_is_refused_without():
    gpu, x = Device(0), np.arange(6.0)
    a = gpu.put(x)
    assert a[a > 2].numpy().tolist() == x[x > 2].tolist()
    b = gpu.empty(6, "fp64")
    with pytest.raises(ValueError, match="depends on numbers"):
        b[b > 2]


def test_flops_and_bytes_of_single_operations():
    gpu = Device(0)
    x, w = gpu.empty((2, 4, 3), "fp32"), gpu.empty((3, 5), "fp32")
    y = x @ w
    assert (gpu.matmul_flops, gpu.other_flops) == (2 * 2 * 4 * 3 * 5, 0)
    assert (gpu.bytes_read, gpu.bytes_written) == (4 * (24 + 15), 4 * 40)
    gpu.reset_meters()
    y + y[0, 0]
    assert gpu.other_flops == 40
    y.sum(axis=-1)
    assert gpu.other_flops == 40 + 40
    gpu.reset_meters()
    y * y  # the same operand twice is read once
    assert (gpu.bytes_read, gpu.bytes_written) == (160, 160)
    gpu.reset_meters()
    gpu.empty((100, 7), "fp32")[
        gpu.empty(2, np.int64)
    ]  # two rows of the table, and the two indices
    assert (gpu.bytes_read, gpu.bytes_written, gpu.other_flops) == (2 * 28 + 16, 2 * 28, 0)
    y.reshape(-1)[::2].T[None]
    assert list(gpu.kernels) == ["getitem"]
    gpu.reset_meters()
    y[0] = y[1, 0]  # [4, 5] = [5], broadcast
    y[gpu.empty(1, np.int64)] = 0.0
    assert (gpu.bytes_read, gpu.bytes_written, gpu.other_flops) == (20 + 8, 80 + 80, 0)


BF16 = {
    "arrays": (lambda x: x + x, "bf16"),
    "python scalars": (lambda x: 2 * x - 0.5, "bf16"),
    "matmul": (lambda x: x @ x, "bf16"),
    "sum": (lambda x: x.sum(axis=0), "bf16"),
    "mean": (lambda x: x.mean(axis=-1, keepdims=True), "bf16"),
    "where": (lambda x: np.where(x > 0, x, 0.0), "bf16"),
    "joined": (lambda x: np.concatenate([x, x]), "bf16"),
    "zeros": (lambda x: np.zeros(3, x.dtype, like=x), "bf16"),
    "full": (lambda x: np.full(3, 1.5, x.dtype, like=x), "bf16"),
    "ones_like": (lambda x: np.ones_like(x), "bf16"),
    "index": (lambda x: x[np.arange(2, like=x)], "bf16"),
    "float32": (lambda x: x + x.astype("fp32"), "fp32"),
    "float16": (lambda x: x + x.astype("fp16"), "fp32"),
    "sum in float32": (lambda x: x.sum(dtype=np.float32), "fp32"),
    "numpy's float64": (lambda x: x * np.float64(2), "fp64"),
    "compare": (lambda x: x > x, "bool"),
    "back": (lambda x: x.astype("fp32").astype("bf16"), "bf16"),
}


@pytest.mark.parametrize("name", BF16)
def test_bfloat16_has_two_bytes_and_float16s_rules(name):
    function, dtype = BF16[name]
    x = Device(0).empty((4, 4), "bf16")
    assert x.nbytes == 32
    assert function(x).dtype == as_dtype(dtype)


def test_bfloat16_needs_an_array_without_numbers():
    with pytest.raises(TypeError, match="NumPy has no bfloat16"):
        Device(0).put(np.ones(3)).astype("bf16")


def test_devices_do_not_mix_and_the_error_names_them_and_the_way_out():
    x, y = Device(0).put(np.ones((4, 8))), Device("the other").empty((8,), "bf16")
    with pytest.raises(ValueError) as error:
        x + y
    for part in ("add", "device 0", "the other", "[4, 8] float64", "[8] bfloat16", "to_device"):
        assert part in str(error.value)
    assert (x.to_device(y.device) + y).device is y.device
    for mix in (
        lambda: x @ y,
        lambda: np.where(x > 0, x, y),
        lambda: np.concatenate([x, y]),
        lambda: x[y],
        lambda: x.__setitem__(0, y),
        lambda: np.add(x, 1, out=y),
    ):
        with pytest.raises(ValueError, match="mixes devices"):
            mix()


def test_numpy_arrays_do_not_mix_with_device_arrays():
    x, n = Device(0).put(np.ones(3)), np.ones(3)
    for mix in (
        lambda: x + n,
        lambda: n + x,
        lambda: n @ x,
        lambda: np.where(n, x, x),
        lambda: x.__setitem__(0, n),
        lambda: x[np.array([0])],
        lambda: x[[0, 1]],
        lambda: np.concatenate([x, n]),
        lambda: np.add.at(x, np.array([0]), 1),
    ):
        with pytest.raises(TypeError, match=r"device\.put"):
            mix()
    with pytest.raises(TypeError, match="mixes"):
        n += x
    for convert in (
        lambda: np.asarray(x),
        lambda: np.array(x),
        lambda: n.__setitem__(slice(3), x),
    ):
        with pytest.raises(TypeError, match=r"x\.numpy\(\)"):
            convert()


def test_unknown_functions_are_refused_by_name():
    x = Device(0).put(np.ones(3))
    for call, name in (
        (lambda: np.linalg.norm(x), "norm"),
        (lambda: np.fft.fft(x), "fft"),
        (lambda: np.add.accumulate(x), "add.accumulate"),
        (lambda: np.modf(x), "modf"),
        (lambda: np.add(x, x, where=True), "where"),
    ):
        with pytest.raises(TypeError, match=name):
            call()


def test_numbers_are_read_only_where_there_are_some():
    gpu = Device(0)
    x, y = gpu.put(np.array(3)), gpu.empty((), "fp32")
    assert (float(x), int(x), bool(x), [5, 6, 7, 8][x]) == (3.0, 3, True, 8)
    for read in (float, int, bool, lambda y: y.numpy(), range):
        with pytest.raises(ValueError, match="no numbers"):
            read(y)
    with pytest.raises(ValueError, match="nothing without numbers"):
        x += y
    with pytest.raises(ValueError, match="nothing without numbers"):
        x[...] = y
    assert not (gpu.put(np.ones(2)) + gpu.empty(2)).has_numbers


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: x @ y,
        lambda x, y: x @ x,
        lambda x, y: np.concatenate([x, y]),
        lambda x, y: x.__iadd__(y),
        lambda x, y: x.__setitem__(0, y),
        lambda x, y: np.where(x, x, y),
        lambda x, y: x.reshape(5, 5),
        lambda x, y: np.split(x, 3),
        lambda x, y: np.add(x, 1, out=y),
        lambda x, y: x.sum(axis=2),
        lambda x, y: x[7],
        lambda x, y: np.add.at(x, 0, y),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_and_without_numbers(call):
    for make in (lambda shape: Device(0).put(np.ones(shape)), Device(0).empty):
        with pytest.raises((ValueError, IndexError)):
            call(make((4, 6)), make((3, 5)))


def test_in_place_result_has_to_fit_the_dtype():
    x, i = Device(0).empty(3), Device(0).empty(3, np.int64)
    for change in (lambda: i.__iadd__(0.5), lambda: np.exp(x, out=i)):
        with pytest.raises((ValueError, TypeError)):
            change()


def test_held_bytes_follow_the_arrays_lives():
    gpu = Device(0)
    x = gpu.empty((10, 10), "fp64")
    view = x[2:3].T
    del x
    assert gpu.held == 800  # the view keeps the whole
    del view
    assert gpu.held == 0 and gpu.peak == 800
    with gpu.kind("weights"):
        w = gpu.put(np.ones(3, np.float32))
        with gpu.kind("gradients"):
            g = w * 2
    y = w + g
    assert gpu.held_by_kind == {"weights": 12, "gradients": 12, "activations": 12}
    del y
    gpu.reset_meters()
    assert gpu.peak == gpu.held == 24
    assert gpu.peak_by_kind["activations"] == 0
    np.exp(w * 2)  # both are there for a moment
    assert (gpu.held, gpu.peak, gpu.peak_by_kind["activations"]) == (24, 48, 24)


def test_put_copies():
    gpu, x = Device(0), np.ones(3)
    y = gpu.put(x)
    x[:] = 7
    assert y.numpy().tolist() == [1, 1, 1]
    y.numpy()[:] = 7
    assert y.numpy().tolist() == [1, 1, 1]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.8 * (x + 0.04 * x * x * x)))


@pytest.mark.parametrize(
    "put", [lambda gpu, x: gpu.put(x), lambda gpu, x: gpu.empty(x.shape, x.dtype)]
)
def test_a_fused_kernel_reads_and_writes_once_and_holds_no_intermediate(put):
    apart, fused = Device(0), Device(1)
    fused.fused = {"gelu"}
    for gpu in (apart, fused):
        x = put(gpu, np.ones((4, 8)))
        with gpu.kernel("gelu"):
            y = gelu(x)
        assert y.shape == (4, 8) and gpu.other_flops == 9 * 32
    assert set(apart.kernels) == {"gelu/multiply", "gelu/add", "gelu/tanh"}
    assert apart.peak > 2 * x.nbytes
    assert fused.kernels == {"gelu": [1, 9 * 32, 2 * x.nbytes, 0.0]}
    assert (fused.bytes_read, fused.bytes_written) == (x.nbytes, y.nbytes)
    assert fused.held == fused.peak == 2 * x.nbytes


def test_what_a_fused_kernel_keeps_or_writes_outside_counts_once():
    gpu = Device(0)
    gpu.fused = True
    qkv, total = gpu.empty((4, 6), "fp64"), gpu.empty((4, 2), "fp64")

    def attend(qkv):
        q, k, v = np.split(qkv, 3, axis=1)  # three views: all of qkv together, however often read
        with gpu.kernel("softmax"):  # a part of it
            p = np.exp(q @ k.T) + 1  # kept
            total[...] = 0
            total[...] += p @ (v + v)
        return lambda: p

    with gpu.kernel("attend"):
        kept = attend(qkv)
    assert list(gpu.kernels) == ["attend"]
    assert gpu.bytes_read == qkv.nbytes + total.nbytes
    assert gpu.bytes_written == total.nbytes + kept().nbytes
    assert gpu.held == qkv.nbytes + total.nbytes + kept().nbytes
    assert gpu.matmul_flops == 2 * (4 * 2 * 4) * 2
    with pytest.raises(ZeroDivisionError), gpu.kernel("attend"):
        raise ZeroDivisionError
    qkv + 1
    assert list(gpu.kernels) == ["attend", "add"]  # the failed one is over


class Cost:
    """A second for each kernel, and one for each product."""

    def __init__(self):
        self.asked = []

    def kernel(self, name, matmuls, flops, nbytes, dtype):
        self.asked.append((name, list(matmuls), flops, nbytes, dtype))
        return 1.0 + len(matmuls)


def test_a_kernel_starts_when_its_stream_is_free_and_its_inputs_are_ready():
    gpu = Device(0, Cost())
    gpu.record = []
    x, w = gpu.empty((4, 3), "bf16"), gpu.empty((3, 5), "bf16")
    y = x @ w
    assert (x.ready, y.ready) == (0, 2)
    x._storage.ready = 10.0  # as if it came from another device
    z = x + 1
    y += 1
    assert (z.ready, y.ready, y[1:].ready) == (11, 12, 12)
    assert gpu.record == [
        ("compute", "matmul", 0, 2),
        ("compute", "add", 10, 11),
        ("compute", "add", 11, 12),
    ]
    assert gpu.streams["compute"] == 12 and gpu.seconds["compute"] == 4
    assert y.to_device(Device(1, Cost())).ready == 12
    gpu.fused = True
    with gpu.kernel("mlp"):
        y = gelu(x @ w) @ w.T
    assert (y.ready, gpu.kernels["mlp"][3]) == (15, 3)
    assert gpu.cost.asked[0] == ("matmul", [(1, 4, 5, 3)], 0, 2 * (12 + 15 + 20), bfloat16)
    assert gpu.cost.asked[-1] == (
        "mlp",
        [(1, 4, 5, 3), (1, 4, 3, 5)],
        9 * 20,
        2 * (12 + 15 + 12),
        bfloat16,
    )


def small_model(dtype):
    rng = np.random.default_rng(3)
    shapes = gpt2_shapes(11, 8, 12, 3)
    params = unflatten(
        {k: (0.1 * rng.standard_normal(s)).astype(dtype) for k, s in shapes.items()}
    )
    return params, rng.integers(0, 11, (2, 7)), rng.integers(-1, 11, (2, 7))


@pytest.mark.parametrize("fused", [frozenset(), True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_runs_unchanged_and_to_the_bit_and_without_numbers_at_the_same_cost(dtype, fused):
    params, tokens, targets = small_model(dtype)

    def step(put, gpu):
        gpu and setattr(gpu, "fused", fused)
        p = put_all(params, put)
        loss, back = layers.gpt2(put(tokens), p, put(targets), 9, n_head=3)
        grads = flatten(back()[1])
        norm = clip(grads, 0.1)
        AdamW(flatten(p)).step(flatten(p), grads, 0.01)
        return [loss, norm, *grads.values(), *flatten(p).values()]

    one, two = Device(1, Cost()), Device(2, Cost())
    expected, real = step(np.copy, None), step(one.put, one)
    shaped = step(lambda x: two.empty(x.shape, x.dtype), two)
    for a, b, c in zip(expected, real, shaped):
        assert a.dtype == b.dtype == c.dtype and a.shape == b.shape == c.shape
        assert a.tobytes() == b.numpy().tobytes()
    assert meters(one) == meters(two)
    assert one.seconds == two.seconds


def test_generation_with_a_cache_runs_unchanged():
    params, tokens, _ = small_model("float32")
    expected = gpt2.gpt2(tokens, **params, n_head=3)
    gpu = Device(0)
    p, ids = put_all(params, gpu.put), gpu.put(tokens)
    assert gpt2.gpt2(ids, **p, n_head=3).numpy().tobytes() == expected.tobytes()

    def in_two_calls(put, ids, p):
        cache = gpt2.new_cache(**p, n_head=3, batch=(2,))
        gpt2.gpt2(ids[:, :4], **p, n_head=3, cache=cache)
        return gpt2.gpt2(ids[:, 4:], **p, n_head=3, cache=cache, past=4, last=True)

    expected = in_two_calls(None, tokens, params)
    assert in_two_calls(gpu.put, ids, p).numpy().tobytes() == expected.tobytes()
    shaped = put_all(params, lambda x: gpu.empty(x.shape, x.dtype))
    assert in_two_calls(gpu.empty, gpu.empty((2, 7), np.int64), shaped).shape == expected.shape


def gpt3_175b(gpu, n_layer):
    d, n, v = 12288, 2048, 51200
    with gpu.kind("weights"):
        shapes = gpt2_shapes(v, n, d, n_layer)
        params = unflatten({k: gpu.empty(s, "bf16") for k, s in shapes.items()})
    ids = gpu.empty((1, n), np.int64)
    loss, back = layers.gpt2(ids, params, ids, n, n_head=96)
    return loss, gpu.matmul_flops, back()[1]


def test_gpt3_175b_runs_on_one_device_without_numbers():
    d, n, v, n_layer = 12288, 2048, 51200, 96
    gpu = Device(0)
    start = time.process_time()
    loss, forward, grads = gpt3_175b(gpu, n_layer)
    assert time.process_time() - start < 3
    # a layer: 24 n d^2 for the weights' products, 4 n^2 d for scores and values; the head: 2 n d v
    assert forward == n_layer * (24 * n * d * d + 4 * n * n * d) + 2 * n * d * v
    assert gpu.matmul_flops == 3 * forward
    assert loss.dtype == bfloat16 and all(g.dtype == bfloat16 for g in flatten(grads).values())
    size = v * d + n * d + n_layer * (12 * d * d + 13 * d) + 2 * d
    assert gpu.peak_by_kind["weights"] == 2 * size
    assert sum(g.nbytes for g in flatten(grads).values()) == 2 * size
    del loss, grads
    gc.collect()
    assert gpu.held == 0


def test_arrays_without_numbers_take_no_memory():
    tracemalloc.start()
    gpt3_175b(Device(0), n_layer=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


@pytest.mark.parametrize("a, b", [([3], [3, 2]), ([4, 3], [3]), ([3], [3]), ([3], [5, 3, 2])])
def test_vectors_multiply_as_rows_or_columns(a, b):
    gpu = Device(0)
    expected = np.ones(a) @ np.ones(b)
    with_numbers = gpu.put(np.ones(a)) @ gpu.put(np.ones(b))
    assert with_numbers.shape == expected.shape == (gpu.empty(a) @ gpu.empty(b)).shape
    assert gpu.matmul_flops == 2 * 2 * 3 * expected.size


def test_vectors_multiply_with_numbers():
    gpu = Device(0)
    x, w = np.arange(3.0), np.ones((3, 2))
    assert (gpu.put(x) @ gpu.put(w)).numpy().tolist() == (x @ w).tolist()
    assert gpu.matmul_flops == 2 * 3 * 2
