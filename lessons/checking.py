"""What checks are made of. Each raises an AssertionError of one line that says what is wrong."""

import copy
import re
from contextlib import contextmanager
from functools import partial
from numbers import Number

import numpy as np

from gpt_numpy.device import DeviceArray
from gpt_numpy.mesh import CommunicationError, run

# Of groups: a pair, an odd number, more than a pair; at last one rank, whose failures say least.
SIZES = (2, 3, 4, 1)
ARRAYS = (np.ndarray, DeviceArray)


def same(got, expected, what, mistakes=None, by=None):
    """Refuse what is not equal: kind, length, shape, dtype, NaN, values (1e-10; float32: 1e-5).

    mistakes is {what the reader may have misunderstood: what that would give}, or a list of such
    pairs; the first that fits is named. by says what a list's entries are, such as "rank".

    >>> same(1.0, 4.0, "the sum over 4 ranks", {"is the all-reduce missing?": 1.0})
    Traceback (most recent call last):
    AssertionError: the sum over 4 ranks: it is 1, expected 4: is the all-reduce missing?
    """
    problem = difference(got, expected)
    if problem:
        problem = re.sub(r"^\[(\d+)\]", rf"{by} \1", problem) if by else problem
        known = mistakes.items() if isinstance(mistakes, dict) else mistakes or ()
        hint = next((f": {text}" for text, value in known if not difference(got, value)), "")
        what = re.sub(r"\b1 ranks\b", "1 rank", what)
        raise AssertionError(f"{what}: {problem}{hint}")


def difference(got, expected):
    """Why got is not what is expected, in a line; None if it is. Looks into lists and dicts."""
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return f"expected a dict with the keys {list(expected)}, got {brief(got)}"
        return in_depth((key, difference(got[key], expected[key])) for key in expected)
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(expected):
            kind = type(expected).__name__
            return f"expected a {kind} that is {len(expected)} long, got {brief(got)}"
        return in_depth(enumerate(map(difference, got, expected)))
    if isinstance(expected, np.ndarray):
        if not isinstance(got, np.ndarray):
            return f"expected a NumPy array {form(expected)}, got {brief(got)}"
        kind = got.dtype == expected.dtype or got.dtype.kind == expected.dtype.kind in "iu"
        if got.shape != expected.shape or not kind:
            return f"expected {form(expected)}, got {form(got)}"
        return values(got, expected)
    if isinstance(expected, Number) and not isinstance(expected, bool):
        if isinstance(got, bool) or not isinstance(got, (Number, np.ndarray)) or np.ndim(got):
            return f"expected a number, got {brief(got)}"
        return values(np.asarray(got), np.asarray(expected))
    return (
        None
        if type(got) is type(expected) and got == expected
        else f"expected {expected!r}, got {brief(got)}"
    )


def in_depth(differences):
    return next((f"[{key!r}]: {problem}" for key, problem in differences if problem), None)


def values(got, expected):
    tolerance = 1e-5 if expected.dtype == np.float32 else 1e-10
    finite = np.abs(expected[np.isfinite(expected)])
    close = np.isclose(got, expected, tolerance, tolerance * finite.max(initial=0), equal_nan=True)
    if close.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~close)[0])
    where = f"element {place[0] if len(place) == 1 else list(place)} is " if place else "it is "
    return f"{where}{got[place]:.12g}, expected {expected[place]:.12g}"


def form(x):
    return f"{list(x.shape)} {x.dtype}"


def brief(x):
    if isinstance(x, ARRAYS):
        return f"an array {form(x)}"
    text = " ".join(repr(x).split())
    return (
        f"{type(x).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"
        if x is not None
        else "None"
    )


def each(function, x):
    """x with the function applied to every array in it, in lists, tuples and dicts.

    >>> each(np.sum, {"w": np.ones(3), "rest": [np.ones(2), None]})
    {'w': np.float64(3.0), 'rest': [np.float64(2.0), None]}
    """
    if isinstance(x, ARRAYS):
        return function(x)
    if isinstance(x, dict):
        return {key: each(function, value) for key, value in x.items()}
    return [each(function, value) for value in x] if isinstance(x, (list, tuple)) else x


def parts_of_block(p, n):
    """A block's parameters, or their gradients, as each of n tensor-parallel ranks has them."""

    def columns(c, thirds):
        def cut(x):
            x = x.reshape(*x.shape[:-1], thirds, -1)
            return [part.reshape(*x.shape[:-2], -1) for part in np.split(x, n, axis=-1)]

        return [{"w": w, "b": b} for w, b in zip(cut(c["w"]), cut(c["b"]))]

    def rows(c):
        return [{"w": w, "b": c["b"]} for w in np.split(c["w"], n)]

    attn, mlp = p["attn"], p["mlp"]
    split = zip(columns(attn["c_attn"], 3), rows(attn["c_proj"]), columns(mlp["c_fc"], 1),
                rows(mlp["c_proj"]))  # fmt: skip
    return [
        {"ln_1": p["ln_1"], "attn": {"c_attn": a, "c_proj": b},
         "ln_2": p["ln_2"], "mlp": {"c_fc": c, "c_proj": d}}
        for a, b, c, d in split
    ]  # fmt: skip


@contextmanager
def unchanged(*inputs):
    """with unchanged(xs): the arrays in xs have to be the same afterwards."""
    inputs = inputs if len(inputs) > 1 else inputs[0]
    before = copy.deepcopy(inputs)
    yield
    problem = difference(inputs, before)
    if problem:
        raise AssertionError(
            f"an input was changed ({problem}): others still need it; work on a copy"
        )


def on_ranks(program, mesh, *by_rank, may_change=False):
    """Run program(rank, ...) on a mesh -> its outputs by rank, as NumPy arrays.

    by_rank: for each further argument a list with every rank's; arrays in them are put on the
    rank's device. Outputs must be arrays on that device. mesh.devices have the meters (`sent`,
    `peak`, `matmul_flops`), set to zero before. may_change: the program may write on its inputs.
    """

    def fetch(device, x):
        if not isinstance(x, DeviceArray):
            raise AssertionError(
                f"expected an array on {device}, got {brief(x)}, which is on none"
            )
        if x.device is not device:
            raise AssertionError(f"expected an array on {device}, got one on {x.device}")
        return x.numpy()

    def one(rank):
        given = [values[rank.rank] for values in by_rank]
        placed = [each(rank.device.put, x) for x in given]
        rank.device.reset_meters()
        y = program(rank, *placed)
        problem = (
            None
            if may_change
            else difference(each(DeviceArray.numpy, placed), each(np.asarray, given))
        )
        if problem:
            raise AssertionError(
                f"rank {rank.rank}: an input was changed ({problem}): work on a copy"
            )
        return each(partial(fetch, rank.device), y)

    try:
        return run(one, mesh)
    except CommunicationError as error:
        ranks = "1 rank" if mesh.size == 1 else f"{mesh.size} ranks"
        raise AssertionError(f"on {ranks}: {error}") from error
