"""optim.py against the papers' algorithms in plain loops over single numbers."""

import math

import numpy as np
import pytest

from gpt_numpy.optim import PIECE, AdamW, Lamb, clip, decayed
from tests.tiny import SHAPES, tiny_tensors

SIZES = {
    "matrix": (3, 5), "bias": (7,), "odd": (PIECE + 1,), "large": (2, PIECE // 2 + 3),
    "nothing": (0, 4), "one": (1, 1),
}  # fmt: skip
# Each of them is large enough to be felt.
SETTINGS = {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.3}
LR = [0.1, 0.05, 0.2]


def arrays(seed, sizes=SIZES, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in sizes.items()}


def sampled(n):
    """Places of an array to follow with the slow oracle: both ends of each piece, some between."""
    return sorted({i for i in (0, 1, n // 2, PIECE - 1, PIECE, PIECE + 1, n - 1) if 0 <= i < n})


def moments(g, m, v, t):
    """Adam's direction for one number: Kingma and Ba, arXiv 1412.6980, algorithm 1."""
    (beta1, beta2), eps = SETTINGS["betas"], SETTINGS["eps"]
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return m_hat / (math.sqrt(v_hat) + eps), m, v


def test_one_step_of_adamw_by_hand():
    """Decay after the step would give 0.891000010, no bias correction 0.673773."""
    theta = {"w": np.ones((1, 1))}
    optimizer = AdamW(theta, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    optimizer.step(theta, {"w": np.full((1, 1), 0.1)}, lr=0.1)
    assert abs(theta["w"][0, 0] - 0.890000010) < 5e-10


def test_adamw_equals_the_papers_algorithm_number_by_number():
    w, grads = arrays(0), [arrays(i + 1) for i in range(3)]
    expected = {}
    for name, shape in SIZES.items():
        decay = SETTINGS["weight_decay"] if len(shape) == 2 else 0
        for i in sampled(w[name].size):
            x, m, v = float(w[name].flat[i]), 0.0, 0.0
            for t, lr in enumerate(LR, start=1):
                u, m, v = moments(float(grads[t - 1][name].flat[i]), m, v, t)
                x = x - lr * decay * x - lr * u
            expected[name, i] = x
    optimizer = AdamW(w, **SETTINGS)
    kept = [{name: g.copy() for name, g in step.items()} for step in grads]
    for g, lr in zip(grads, LR):
        optimizer.step(w, g, lr)
    np.testing.assert_equal(grads, kept)
    assert optimizer.t == 3
    for (name, i), x in expected.items():
        assert abs(w[name].flat[i] - x) < 1e-12, (name, i)


def test_adamws_pieces_leave_no_element_out():
    """All elements alike must stay alike."""
    w = {name: np.ones(shape) for name, shape in SIZES.items()}
    optimizer = AdamW(w, **SETTINGS)
    for _ in range(2):
        optimizer.step(w, {name: np.full(shape, 0.5) for name, shape in SIZES.items()}, 0.1)
    for name, a in w.items():
        assert a.size == 0 or (np.unique(a).size == 1 and a.flat[0] != 1), name


def test_lamb_equals_the_papers_algorithm():
    """You et al., arXiv 1904.00962, algorithm 2, with phi the identity: r = |w| / |u| by layer."""
    sizes = {"matrix": (3, 5), "bias": (7,), "large": (2, PIECE // 2 + 3), "nothing": (0, 4)}
    w, grads = arrays(0, sizes), [arrays(i + 1, sizes) for i in range(3)]
    expected = {}
    for name, shape in sizes.items():
        decay = SETTINGS["weight_decay"] if len(shape) == 2 else 0
        xs = w[name].ravel().tolist()
        ms, vs = [0.0] * len(xs), [0.0] * len(xs)
        for t, lr in enumerate(LR, start=1):
            us = []
            for i, g in enumerate(grads[t - 1][name].ravel().tolist()):
                u, ms[i], vs[i] = moments(g, ms[i], vs[i], t)
                us.append(u + decay * xs[i])
            ratio = (
                math.sqrt(math.fsum(x * x for x in xs)) / math.sqrt(math.fsum(u * u for u in us))
                if xs
                else 1
            )
            xs = [x - lr * ratio * u for x, u in zip(xs, us)]
        expected[name] = np.reshape(xs, shape)
    optimizer = Lamb(w, **SETTINGS)
    for g, lr in zip(grads, LR):
        optimizer.step(w, g, lr)
    for name in sizes:
        np.testing.assert_allclose(w[name], expected[name], rtol=0, atol=1e-11, err_msg=name)


def test_lamb_moves_by_lr_times_the_weights_norm():
    w = arrays(0, {"matrix": (4, 6), "bias": (5,)})
    before = {name: a.copy() for name, a in w.items()}
    Lamb(w).step(w, arrays(1, {"matrix": (4, 6), "bias": (5,)}), 0.25)
    for name in w:
        assert (
            abs(np.linalg.norm(w[name] - before[name]) - 0.25 * np.linalg.norm(before[name]))
            < 1e-12
        )


@pytest.mark.parametrize("optimizer", [AdamW, Lamb])
def test_zeros_give_no_nan_and_no_warning(optimizer):
    """New biases are 0; so is every gradient of a batch that is masked out."""
    w = {"zero": np.zeros(3), "ones": np.ones((2, 2)), "gain": np.ones(2), "nothing": np.zeros(0)}
    model = optimizer(w, weight_decay=0.1)
    with np.errstate(all="raise"):
        model.step(w, {name: np.zeros_like(a) for name, a in w.items()}, 0.1)
        assert not w["zero"].any() and (w["gain"] == 1).all()
        # Decay alone: AdamW's is lr * weight_decay; LAMB scales that step to the length of w.
        np.testing.assert_allclose(w["ones"], 0.99 if optimizer is AdamW else 0.9)
        model.step(w, {name: np.ones_like(a) for name, a in w.items()}, 0.1)
    assert (w["zero"] < 0).all() and all(np.isfinite(a).all() for a in w.values())


def test_matrices_alone_decay():
    matrices = {
        "wte.weight", "wpe.weight",
        *[f"h.{i}.{name}.weight" for i in (0, 1)
          for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")],
    }  # fmt: skip
    w = tiny_tensors()
    assert decayed(w) == matrices
    AdamW(w, weight_decay=0.5).step(
        w, {name: np.zeros(shape) for name, shape in SHAPES.items()}, lr=0.5
    )
    for name, before in tiny_tensors().items():
        np.testing.assert_allclose(w[name], before * (0.75 if name in matrices else 1), rtol=1e-15)


def test_the_names_that_decay_can_be_given():
    w = {"flat": np.ones(3), "matrix": np.ones((1, 3))}
    AdamW(w, weight_decay=0.5, decay={"flat"}).step(
        w, {"flat": np.zeros(3), "matrix": np.zeros((1, 3))}, lr=0.5
    )
    assert (w["flat"] == 0.75).all() and (w["matrix"] == 1).all()


@pytest.mark.parametrize("optimizer", [AdamW, Lamb])
def test_arrays_with_gaps_are_changed_too(optimizer):
    """A shard can be a view of some columns."""
    grads = arrays(2, {"a": (4, 3), "b": (3, 4)})
    plain = arrays(1, {"a": (4, 3), "b": (3, 4)})
    base = np.zeros((4, 6))
    base[:, ::2] = plain["a"]
    gaps = {"a": base[:, ::2], "b": np.asfortranarray(plain["b"])}
    first, second = optimizer(plain), optimizer(gaps)
    for _ in range(2):
        first.step(plain, grads, 0.1)
        second.step(gaps, {"a": np.asfortranarray(grads["a"]), "b": grads["b"]}, 0.1)
    for name in plain:
        np.testing.assert_allclose(gaps[name], plain[name], rtol=0, atol=1e-14)
    assert not base[:, 1::2].any()


@pytest.mark.parametrize("optimizer", [AdamW, Lamb])
def test_float32_stays_float32_with_a_float64_lr(optimizer):
    w = arrays(0, dtype=np.float32)
    kept = dict(w)
    model = optimizer(w)
    grads = arrays(1, dtype=np.float32)
    clip(grads, np.float64(1))
    model.step(w, grads, np.float64(0.1))
    for state in (w, grads, model.m, model.v):
        assert {a.dtype for a in state.values()} == {np.dtype(np.float32)}
    assert all(w[name] is kept[name] for name in w)


def test_clip_is_by_the_norm_over_all_and_not_by_each():
    grads = arrays(3)
    before = {name: g.copy() for name, g in grads.items()}
    norm = math.sqrt(math.fsum(x * x for g in before.values() for x in g.ravel()))
    assert abs(clip(grads, 2.0) - norm) < 1e-10
    for name in grads:
        np.testing.assert_allclose(grads[name], before[name] * (2 / norm), rtol=1e-13, atol=0)


@pytest.mark.parametrize("max_norm", [5.0, 5.1, math.inf])
def test_clip_leaves_gradients_that_are_short_enough_as_they_are(max_norm):
    grads = {"a": np.array([3.0, 0]), "b": np.array([[4.0]]), "nothing": np.zeros((0, 3))}
    with np.errstate(all="raise"):
        assert clip(grads, max_norm) == 5
    assert grads["a"].tolist() == [3, 0] and grads["b"].tolist() == [[4]]


def test_clip_of_zeros_and_of_nothing():
    grads = {"a": np.zeros(3)}
    with np.errstate(all="raise"):
        assert clip(grads, 1.0) == 0 and clip({}, 1.0) == 0
    assert not grads["a"].any()


def test_clip_changes_gradients_with_gaps_too():
    grads = {"a": np.asfortranarray(np.full((2, 3), 2.0))}
    clip(grads, 1.0)
    np.testing.assert_allclose(grads["a"], 1 / math.sqrt(6))


def test_norms_of_float32_are_summed_in_float64():
    """In float32, 18 is lost beside 2^36."""
    grads = {"a": np.array([2.0**18], np.float32), "b": np.full(2**17, 2.0**-8 * 3, np.float32)}
    exact = math.sqrt(2.0**36 + 2**17 * 9 * 2.0**-16)
    assert abs(float(clip(grads, math.inf)) - exact) < 1e-9
    assert exact - 2.0**18 > 1e-5


def test_square_sums_of_other_ranks_can_be_added():
    grads = {"a": np.array([3.0])}
    assert clip(grads, 1.0, total=lambda squares: squares["a"] + 16) == 5
    np.testing.assert_allclose(grads["a"], 0.6)
    w = {"w": np.array([3.0])}
    seen = []

    def total(sums):
        seen.append(dict(sums))
        return {name: 4 * s for name, s in sums.items()} if len(seen) == 1 else sums

    lamb = Lamb(w)
    lamb.total = total
    lamb.step(w, {"w": np.array([2.0])}, 0.1)
    assert seen[0] == {"w": 9} and abs(seen[1]["w"] - 1) < 1e-7
    np.testing.assert_allclose(w["w"], 3 - 0.1 * 6, rtol=1e-7)  # |w| is 6 over all ranks, |u| is 1
