"""A simulated device: its own memory, its own arrays, and meters for all that happens on it.

A `DeviceArray` is used like a NumPy array (NEP 13 and NEP 18), so a program written for NumPy runs
on a device unchanged. It refuses to mix with the arrays of another device, as on real GPUs.

>>> gpu = Device(0)
>>> x = gpu.put(np.ones((4, 3), np.float32))        # numbers: the results are NumPy's, to the bit
>>> w = gpu.empty((3, 5), "fp32")                   # a shape and a dtype, but no numbers
>>> y = x @ w
>>> y
DeviceArray([4, 5] float32 on device 0, shape only)
>>> gpu.matmul_flops, gpu.held == x.nbytes + w.nbytes + y.nbytes
(120, True)

Without numbers everything happens as with them (shapes, dtypes, views and copies, errors, meters,
time) except the arithmetic, so a model of any size runs in the time that Python needs to say so.

What a device meters
    matmul_flops         2mnk for each product [m, k] @ [k, n]
    other_flops          1 per output element of an elementwise operation, 1 per input element
                         of a reduction; 0 for moving numbers (copies, indexing, joins)
    bytes_read, bytes_written   by kernels; an operand is read once, of a view only what it shows
    held, peak           bytes of memory now and at most; in held_by_kind and peak_by_kind by
                         what was said with `with device.kind("weights"):`
    sent, received       bytes by the name of the group (mesh.py)
    kernels              name -> [calls, FLOPs, bytes read and written, seconds]

Memory is held from an array's birth until the last array that shares it (a view, say) is gone.
In-place operations hold nothing new. `put` copies, since a device's memory is its own.

A kernel is one operation, or a whole function as one fused kernel: inside `with
device.kernel("gelu"):`, if "gelu" is in the set `device.fused` (or `device.fused` is True), FLOPs
add up, arrays from outside are read once, what is born and dies inside is never in memory, what
outlives it or is written outside is written once, and it starts and ends as one. A fused kernel
inside another one is part of it. If not fused, the operations appear as "gelu/multiply" and so on.

Time passes if the device has a `cost`, any object with
    kernel(name, matmuls, flops, nbytes, dtype) -> seconds; matmuls is a list of (batch, m, n, k),
        flops are the other FLOPs, dtype is that of the (first) product, else of the (first) result
    collective(name, n, nbytes, ranks) -> seconds; nbytes is the whole buffer (see mesh.py)
`streams` tells when each stream is free ("compute"; mesh.py adds "comm", "send" and "recv"),
`seconds` for how long it was busy. An array's `.ready` is the moment its numbers are there: a
kernel starts when its stream is free and its inputs are ready. Set `device.record = []` to get
(stream, name, start, end) of all that takes time.
"""

from __future__ import annotations

import operator
import weakref
from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate, pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided

bfloat16 = np.dtype([("bfloat16", np.uint16)])  # NumPy has none; two bytes and a name will do
float16 = np.dtype(np.float16)
DTYPES = {"bf16": bfloat16, "bfloat16": bfloat16, "fp16": float16, "fp32": np.dtype(np.float32),
          "fp64": np.dtype(np.float64)}


def as_dtype(dtype):
    """A NumPy dtype from a dtype or a name, "bf16", "fp16", "fp32" and "fp64" among them."""
    return DTYPES[dtype] if isinstance(dtype, str) and dtype in DTYPES else np.dtype(dtype)


def what(x):
    """Shape and dtype of an array, for messages: [4, 8] bfloat16."""
    return f"{list(x.shape)} {'bfloat16' if x.dtype == bfloat16 else x.dtype.name}"


class Storage:
    """A piece of a device's memory. The arrays that share it keep it alive."""

    __slots__ = ("device", "nbytes", "has_numbers", "kind", "ready", "held", "__weakref__")

    def __init__(self, device, nbytes, has_numbers):
        self.device, self.nbytes, self.has_numbers = device, nbytes, has_numbers
        self.kind, self.ready, self.held = device._kind, 0.0, False
        if device._fused is None:
            self.hold()
        else:  # perhaps it will not outlive the fused kernel
            device._fused.born.append(weakref.ref(self))

    def hold(self):
        self.held = True
        self.device._hold(self.kind, self.nbytes)

    def __del__(self):
        if self.held:
            self.device._hold(self.kind, -self.nbytes)


class Kernel:
    """What one kernel computes, reads and writes. An operation alone is a kernel, too."""

    def __init__(self):
        self.matmuls, self.flops, self.dtype = [], 0, None
        self.reads, self.writes = {}, {}  # arrays, by identity
        self.born = []  # weak references to storage: in memory only if it outlives the kernel

    def add(self, reads, writes, flops, matmul):
        """One operation. Only arrays in memory are read and written."""
        self.flops += flops
        if self.dtype is None or (matmul and not self.matmuls):
            self.dtype = writes[0].dtype
        if matmul:
            self.matmuls.append(matmul)
        for arrays, seen in ((reads, self.reads), (writes, self.writes)):
            for x in arrays:
                if isinstance(x, DeviceArray) and x._storage.held:
                    seen[id(x)] = x

    def finish(self, device, name):
        """Meter it, and let its time pass."""
        born = [storage for ref in self.born if (storage := ref()) is not None]
        for storage in born:
            storage.hold()
        if self.dtype is None:  # there was no operation
            return
        reads, writes = reach(self.reads.values()), reach(self.writes.values())
        writes |= {storage: storage.nbytes for storage in born}
        nread, nwritten = sum(reads.values()), sum(writes.values())
        matmul_flops = sum(2 * b * m * n * k for b, m, n, k in self.matmuls)
        device.matmul_flops += matmul_flops
        device.other_flops += self.flops
        device.bytes_read += nread
        device.bytes_written += nwritten
        row = device.kernels.setdefault(name, [0, 0, 0, 0.0])
        row[:3] = row[0] + 1, row[1] + matmul_flops + self.flops, row[2] + nread + nwritten
        if device.cost is not None:
            seconds = device.cost.kernel(name, self.matmuls, self.flops, nread + nwritten,
                                         self.dtype)
            row[3] += seconds
            start = max([device.streams["compute"], *(storage.ready for storage in reads)])
            end = device.occupy("compute", name, start, seconds)
            for storage in writes:
                storage.ready = end


def reach(arrays):
    """Bytes that arrays cover of each storage: views of it together no more than all of it."""
    covered = {}
    for x in arrays:
        storage = x._storage
        covered[storage] = min(storage.nbytes, covered.get(storage, 0) + x.nbytes)
    return covered


class Device:
    """One device. `rank` is its number, or a name; `cost` tells how long things take, if given."""

    def __init__(self, rank=0, cost=None):
        self.rank, self.cost = rank, cost
        self.name = rank if isinstance(rank, str) else f"device {rank}"
        self.fused = frozenset()  # names of the kernels that count as one, or True for all
        self.streams, self.record = defaultdict(float), None
        self.held, self.held_by_kind = 0, Counter()
        self._kind, self._label, self._fused = "activations", "", None
        self.reset_meters()

    def __repr__(self):
        return self.name

    def reset_meters(self):
        """Set all meters to zero, and the peak to what is held now. Time goes on."""
        self.matmul_flops = self.other_flops = self.bytes_read = self.bytes_written = 0
        self.sent, self.received = Counter(), Counter()
        self.kernels, self.seconds = {}, defaultdict(float)
        self.peak, self.peak_by_kind = self.held, self.held_by_kind.copy()

    def put(self, array):
        """A copy of a NumPy array, or of another device's array, in this device's memory."""
        if isinstance(array, DeviceArray):
            return array.to_device(self)
        raw = np.array(array)
        return self._own(raw, raw.dtype, True)

    def empty(self, shape, dtype="fp32"):
        """An array with a shape and a dtype but no numbers."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._own(no_numbers(shape), as_dtype(dtype), False)

    @contextmanager
    def kind(self, kind):
        """Arrays born inside count as this kind of memory, such as "weights" or "gradients"."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def label(self, array, kind):
        """Count the memory of an array as another kind from now on; returns the array."""
        storage = array._storage
        if storage.held and storage.device is self:
            self._hold(storage.kind, -storage.nbytes)
            self._hold(kind, storage.nbytes)
        storage.kind = kind
        return array

    @contextmanager
    def kernel(self, name):
        """What runs inside is one fused kernel, if `fused` says so, and else goes by its name."""
        if self._fused is not None:
            yield
            return
        before, self._label = self._label, f"{name}/"
        self._fused = kernel = Kernel() if self.fused is True or name in self.fused else None
        try:
            yield
        finally:
            self._label, self._fused = before, None
            if kernel is not None:
                kernel.finish(self, name)

    def occupy(self, stream, name, start, seconds):
        """Keep a stream busy from `start` on; the moment when it is free again."""
        end = start + seconds
        self.streams[stream] = max(self.streams[stream], end)
        self.seconds[stream] += seconds
        if self.record is not None:
            self.record.append((stream, name, start, end))
        return end

    def _hold(self, kind, nbytes):
        self.held += nbytes
        self.held_by_kind[kind] += nbytes
        if self.held > self.peak:
            self.peak, self.peak_by_kind = self.held, self.held_by_kind.copy()

    def _own(self, raw, dtype, has_numbers):
        """A new array in memory of its own."""
        if has_numbers and dtype == bfloat16:
            raise TypeError("NumPy has no bfloat16: only arrays without numbers can be bfloat16")
        return DeviceArray(raw, Storage(self, raw.size * dtype.itemsize, has_numbers), dtype)

    def _copy_of(self, x):
        """A copy of another device's array, unmetered; ready when the original is."""
        raw = x._raw.copy() if x.has_numbers else no_numbers(x.shape)
        y = self._own(raw, x.dtype, x.has_numbers)
        y._storage.ready = x.ready
        return y

    def _launch(self, name, reads, writes, flops=0, matmul=None):
        """Meter one operation: a kernel of its own, or a part of the fused one around it."""
        kernel = self._fused or Kernel()
        kernel.add(reads, writes, flops, matmul)
        if kernel is not self._fused:
            kernel.finish(self, self._label + name)


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on a device: a NumPy duck array with `.device`, `.to_device()` and `.numpy()`."""

    __slots__ = ("_raw", "_storage", "dtype")
    # _raw is a NumPy array. Without numbers its elements have no bytes, but shape and strides are
    # true, so NumPy itself tells the shape of a view, and whether a reshape has to copy.

    def __init__(self, raw, storage, dtype):
        self._raw, self._storage, self.dtype = raw, storage, dtype

    device = property(lambda self: self._storage.device)
    ready = property(lambda self: self._storage.ready)
    has_numbers = property(lambda self: self._storage.has_numbers)
    shape = property(lambda self: self._raw.shape)
    ndim = property(lambda self: self._raw.ndim)
    size = property(lambda self: self._raw.size)
    nbytes = property(lambda self: self._raw.size * self.dtype.itemsize)
    T = property(lambda self: self._view(self._raw.T))

    def __repr__(self):
        only = "" if self.has_numbers else ", shape only"
        return f"DeviceArray({what(self)} on {self.device}{only})"

    def to_device(self, device):
        """This array on another device: a copy, metered as sent "to_device"; or itself."""
        if device is self.device:
            return self
        self.device.sent["to_device"] += self.nbytes
        device.received["to_device"] += self.nbytes
        return device._copy_of(self)

    def numpy(self):
        """A copy of the numbers as a NumPy array."""
        return self._numbers().copy()

    def _numbers(self):
        if not self.has_numbers:
            raise ValueError(f"{self!r} has no numbers to read")
        return self._raw

    def __array__(self, dtype=None, copy=None):
        raise TypeError(f"{self!r} does not become a NumPy array silently: say x.numpy()")

    def _read_by(function):
        return lambda self: function(self._numbers())

    __float__, __int__, __bool__, __index__ = map(_read_by, (float, int, bool, operator.index))

    def __deepcopy__(self, memo):
        return self.copy()

    def __len__(self):
        return len(self._raw)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def _view(self, raw):
        return DeviceArray(raw, self._storage, self.dtype)

    def transpose(self, *axes):
        return self._view(self._raw.transpose(*axes))

    def swapaxes(self, a, b):
        return self._view(self._raw.swapaxes(a, b))

    def reshape(self, *shape):
        """A view where NumPy's is one, else a copy."""
        shape = shape[0] if len(shape) == 1 else shape
        try:
            return self._view(self._raw.reshape(shape, copy=False))
        except ValueError:
            no_numbers(self.shape).reshape(shape, copy=False)  # raises if the sizes differ
            return self.copy().reshape(shape)

    def copy(self):
        return _compute("copy", np.ndarray.copy, (self,), flops=0)

    def astype(self, dtype, copy=True):
        dtype = as_dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return _compute("astype", lambda x: x.astype(_stand_in(dtype)), (self,), 0, dtype=dtype)

    def sum(self, axis=None, dtype=None, keepdims=False):
        return np.add.reduce(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def max(self, axis=None, keepdims=False):
        return np.maximum.reduce(self, axis=axis, keepdims=keepdims)

    def min(self, axis=None, keepdims=False):
        return np.minimum.reduce(self, axis=axis, keepdims=keepdims)

    def mean(self, axis=None, keepdims=False):
        return _reduce("mean", np.mean, self, axis, keepdims=keepdims)

    def argmax(self, axis=None):
        x, axis = (self.reshape(-1), 0) if axis is None else (self, axis)
        return _reduce("argmax", lambda x, axis: np.argmax(x, axis[0]), x, axis)

    def __getitem__(self, index):
        index, arrays, real = self._index(index)
        if not arrays:
            return self._view(self._raw[index])
        raw = self._raw[_raw(index)] if real else no_numbers(_indexed_shape(self._raw, index))
        y = self.device._own(raw, self.dtype, real)
        self.device._launch("getitem", [self._view(raw), *arrays], [y])
        return y

    def __setitem__(self, index, value):
        index, arrays, _ = self._index(index)
        _, real = _together("setitem", (self, value, *arrays))
        target = self._view(no_numbers(_indexed_shape(self._raw, index)))
        if real:
            self._raw[_raw(index)] = _raw(value)
        else:
            _must_fit("setitem", value, target)
        self.device._launch("setitem", [value, *arrays], [target])

    def _index(self, index):
        """The index as a tuple that always leaves an array; device arrays in it; all real?"""
        index = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, (np.ndarray, list)) for i in index):
            raise TypeError(f"indexing {self!r}: an index array has to be on the same device; say "
                            "device.put(index)")
        arrays = [i for i in index if isinstance(i, DeviceArray)]
        _, real = _together("indexing", (self, *arrays))
        return index if any(i is Ellipsis for i in index) else (*index, Ellipsis), arrays, real

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        known = {"axis", "keepdims", "dtype", "initial"} if method == "reduce" else {"dtype"}
        if method not in ("__call__", "reduce", "at") or ufunc.nout > 1 or options.keys() - known:
            raise TypeError(f"device arrays do not support {name}({', '.join(options)})")
        out = out[0] if out else None
        if method == "reduce":
            return _reduce(name, ufunc.reduce, *inputs, options.pop("axis", 0), out, **options)
        if method == "at":
            return _ufunc_at(name, ufunc, *inputs)
        function = partial(ufunc, **options) if options else ufunc
        return _compute(name, function, inputs, 0 if ufunc is np.matmul else None, out)

    def __array_function__(self, function, types, args, kwargs):
        if function not in FUNCTIONS:
            raise TypeError(f"np.{function.__name__} is not supported on device arrays; x.numpy() "
                            "gives a NumPy array")
        return FUNCTIONS[function](self, *args, **kwargs)


# How an operation runs.

def _together(name, operands):
    """The device of all operands, and whether all have numbers."""
    device, real = None, True
    for x in operands:
        if isinstance(x, DeviceArray):
            storage = x._storage
            if device is None:
                device, first = storage.device, x
            elif storage.device is not device:
                raise ValueError(f"{name} mixes devices: {first!r} and {x!r}; move one of them, "
                                 f"as with x.to_device(...) to {device}")
            real = real and storage.has_numbers
        elif not isinstance(x, (int, float, complex, np.generic)) and np.ndim(x):
            raise TypeError(f"{name} mixes a device array and a {type(x).__name__} of shape "
                            f"{list(np.shape(x))} that is on none; say device.put(x)")
    return device, real


def _compute(name, function, operands, flops=None, out=None, dtype=None):
    """Run a NumPy function, or infer the result's shape and dtype; flops: 1 per output element."""
    device, real = _together(name, operands if out is None else (*operands, out))
    if real:
        options = {} if out is None else {"out": _raw(out)}
        raw = np.asarray(function(*_raw(operands), **options))
    else:
        raw, dtype = _infer(name, function, operands, dtype)
    if out is None:
        out = device._own(raw, dtype or raw.dtype, real)
    elif not real:
        _must_fit(name, DeviceArray(raw, None, dtype), out)
    flops = out.size if flops is None else flops
    matmul = _matmul_size(*operands, out) if name == "matmul" else None
    device._launch(name, operands, [out], flops, matmul)
    return out


def _reduce(name, function, x, axis, out=None, **options):
    axes = range(-x.ndim, 0) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(range(-x.ndim, 0)[i] for i in axes)  # counted from the end
    return _compute(name, partial(function, axis=axes, **options), (x,), x.size, out)


def _ufunc_at(name, ufunc, x, index, values):
    index, arrays, _ = x._index(index)
    device, real = _together(name, (x, values, *arrays))
    target = x._view(no_numbers(_indexed_shape(x._raw, index)))
    if real:
        ufunc.at(x._raw, _raw(index), _raw(values))
    else:
        _must_fit(name, values, target)
    device._launch(name, [target, values, *arrays], [target], target.size)


def _raw(x):
    if isinstance(x, tuple):
        return tuple(map(_raw, x))
    return x._raw if isinstance(x, DeviceArray) else x


def _matmul_size(a, b, y):
    """(batch, m, n, k) of a product y = a @ b."""
    m, n = (a.shape[-2] if a.ndim > 1 else 1), (b.shape[-1] if b.ndim > 1 else 1)
    return y.size // max(m * n, 1), m, n, a.shape[-1]


# Shapes and dtypes where there are no numbers.

@lru_cache(maxsize=4096)
def no_numbers(shape):
    """A NumPy array of a shape, with true strides, whose elements have no bytes.

    >>> x = no_numbers((3, 1000, 1000))
    >>> x.nbytes, x.transpose(1, 0, 2).strides
    (0, (1000, 1000000, 1))
    """
    steps = accumulate(shape[:0:-1], lambda a, b: a * max(b, 1), initial=1)  # 1, d, n * d, ...
    return as_strided(np.empty((), "V0"), shape, tuple(steps)[::-1][:len(shape)])


def _stand_in(dtype):
    return float16 if dtype == bfloat16 else dtype


def _infer(name, function, operands, dtype):
    """Shape and dtype of a result, by asking NumPy with one more axis in front, of length 0.

    bfloat16 behaves as float16 does, but the two together give float32.
    """
    arrays = [x for x in operands if isinstance(x, DeviceArray)]
    dtypes, ndim = {x.dtype for x in arrays}, max(x.ndim for x in arrays)
    half = np.dtype(np.float32) if bfloat16 in dtypes else float16
    if name == "matmul" and 1 in (x.ndim for x in arrays):  # a vector is one row, or one column
        a, b = operands
        rows = a if a.ndim > 1 else np.expand_dims(a, 0)
        columns = b if b.ndim > 1 else np.expand_dims(b, 1)
        raw, dtype = _infer(name, function, (rows, columns), dtype)
        return raw.squeeze((-2,) * (a.ndim == 1) + (-1,) * (b.ndim == 1)), dtype
    asked = [np.empty((0, *[1] * (ndim - x.ndim), *x.shape), half if x.dtype == float16 else
                      _stand_in(x.dtype)) if isinstance(x, DeviceArray) else x for x in operands]
    try:
        with np.errstate(all="ignore"):  # a scalar may be too large for the stand-in
            y = function(*asked)
    except ValueError:
        raise ValueError(f"{name}: {' and '.join(map(what, arrays))} do not fit") from None
    if dtype is None:
        dtype = bfloat16 if y.dtype == float16 and bfloat16 in dtypes else y.dtype
    shape = y.shape[1:]
    for x in arrays if isinstance(function, np.ufunc) and name != "matmul" else ():
        if x.shape == shape:  # NumPy keeps the order of its axes in memory
            return _laid_out_like(x._raw), dtype
    return no_numbers(shape), dtype


def _laid_out_like(raw):
    if raw is no_numbers(raw.shape):
        return raw
    order = sorted(range(raw.ndim), key=lambda i: -abs(raw.strides[i]))
    return no_numbers(tuple(raw.shape[i] for i in order)).transpose(np.argsort(order))


def _must_fit(name, value, target):
    """Raise if a value cannot be written into an array, where not both have numbers."""
    if target.has_numbers:
        raise ValueError(f"{name}: nothing without numbers can be written into {target!r}")
    dtype = _stand_in(value.dtype) if isinstance(value, DeviceArray) else np.result_type(value)
    fits = np.broadcast_shapes(np.shape(value), target.shape) == target.shape
    if not fits or not np.can_cast(dtype, _stand_in(target.dtype), "same_kind"):
        raise ValueError(f"{name}: {what(value)} does not fit into {what(target)}")


def _indexed_shape(raw, index):
    """Shape of raw[index]. Empty arrays stand in for index arrays, to see where their axes go."""
    arrays = [i for i in index if isinstance(i, DeviceArray)]
    if not arrays:
        return raw[index].shape
    if any(i.dtype == bool for i in arrays):
        if not all(i.has_numbers for i in arrays):
            raise ValueError("the shape of x[mask] depends on numbers that are not there")
        return no_numbers(raw.shape)[_raw(index)].shape
    nothing = np.empty(0, int)
    shape = no_numbers(raw.shape)[tuple(nothing if isinstance(i, DeviceArray) else i
                                        for i in index)].shape
    place = shape.index(0)
    return shape[:place] + np.broadcast_shapes(*[i.shape for i in arrays]) + shape[place + 1:]


# NumPy's functions on device arrays (NEP 18). Their first argument is the array that was asked;
# where NumPy has `like=x` (NEP 35) that is x.

def _concatenate(_, arrays, axis=0):
    axis = range(-arrays[0].ndim, 0)[axis]
    return _compute("concatenate", lambda *xs: np.concatenate(xs, axis), tuple(arrays), flops=0)


def _stack(_, arrays, axis=0):
    return np.concatenate([np.expand_dims(x, axis) for x in arrays], axis)


def cut(m, n):
    """Sizes of the parts when m is cut into n, as np.array_split does it.

    >>> cut(10, 4)
    [3, 3, 2, 2]
    """
    return [m // n + (i < m % n) for i in range(n)]


def _array_split(_, x, sections, axis=0):
    m = x.shape[axis]
    if isinstance(sections, (int, np.integer)):
        sections = accumulate(cut(m, sections)[:-1])
    before = (slice(None),) * (axis % x.ndim)
    return [x[(*before, slice(a, b))] for a, b in pairwise([0, *sections, m])]


def _split(_, x, sections, axis=0):
    if isinstance(sections, (int, np.integer)) and x.shape[axis] % sections:
        raise ValueError(f"split: {x.shape[axis]} does not divide into {sections} parts")
    return np.array_split(x, sections, axis)


def _take_along_axis(_, x, indices, axis=-1):
    axis = range(-x.ndim, 0)[axis]
    function = partial(np.take_along_axis, axis=axis)
    return _compute("take_along_axis", function, (x, indices), flops=0)


def _filled(like, function, shape, *args, **options):
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if like.has_numbers:
        raw = function(shape, *args, **options)
        y = like.device._own(raw, raw.dtype, True)
    else:
        y = like.device.empty(shape, function(0, *args, **options).dtype)
    if function is not np.empty:
        like.device._launch("fill", [], [y])
    return y


def _arange(like, *args, **options):
    numbers = np.arange(*args, **options)
    return _filled(like, lambda *_: numbers, numbers.shape)


def _tri(like, N, M=None, k=0, dtype=float):
    i, j = np.arange(N, like=like)[:, None], np.arange(N if M is None else M, like=like)
    return (j <= i + k).astype(dtype)


FUNCTIONS = {
    np.where: lambda _, *operands: _compute("where", np.where, operands),
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.array_split: _array_split,
    np.split: _split,
    np.take_along_axis: _take_along_axis,
    np.arange: _arange,
    np.tri: _tri,
    np.asarray: lambda like, *args, **options: like.device.put(np.asarray(*args, **options)),
}
for _f in (np.expand_dims, np.squeeze, np.moveaxis, np.broadcast_to):
    FUNCTIONS[_f] = lambda _, x, *args, f=_f, **options: x._view(f(x._raw, *args, **options))
for _f in (np.reshape, np.transpose, np.swapaxes, np.copy, np.astype, np.sum, np.mean, np.max,
           np.min, np.argmax):
    FUNCTIONS[_f] = lambda _, x, *args, f=_f, **options: getattr(x, f.__name__)(*args, **options)
for _f in (np.shape, np.ndim, np.size):
    FUNCTIONS[_f] = lambda _, x, f=_f: getattr(x, f.__name__)
for _f, _like in ((np.zeros, np.zeros_like), (np.ones, np.ones_like), (np.empty, np.empty_like),
                  (np.full, np.full_like)):
    FUNCTIONS[_f] = lambda like, *args, f=_f, **options: _filled(like, f, *args, **options)
    FUNCTIONS[_like] = lambda _, x, *value, f=_f, dtype=None: _filled(
        x, f, x.shape, *value, dtype=x.dtype if dtype is None else as_dtype(dtype))
