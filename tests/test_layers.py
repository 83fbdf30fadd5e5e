"""layers.py: gradients against central differences in float64, values by another program, and what
is held.
"""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

from gpt_numpy import gpt2 as forward
from gpt_numpy import layers
from gpt_numpy.checkpoint import flatten
from gpt_numpy.gpt2 import attention_mask
from tests.test_gpt2 import HEADS, N_EMBD, N_VOCAB, random_params
from tests.tiny import N_HEAD, tiny_params


def tree(value):
    """Every array of a nested structure, in order."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        return [a for key in sorted(value) for a in tree(value[key])]
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in tree(v)]
    return []


def slope(f, a, step=3e-4):
    """d f() / d a by fourth-order central differences, one element at a time: f reads array a."""
    result = np.zeros_like(a)
    for i in np.ndindex(a.shape):
        kept = a[i]
        at = []
        for steps in (1, -1, 2, -2):
            a[i] = kept + steps * step
            at.append(f())
        result[i] = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * step)
        a[i] = kept
    return result


def check(layer, x, p, step=3e-4):
    """Gradients of sum(dy * layer(x, p)), for x and each array of p, equal central differences."""
    y, back = layer(x, p)
    dys = [np.random.default_rng(i).normal(size=a.shape) for i, a in enumerate(tree(y))]
    dx, grads = back(*[dy.copy() for dy in dys])

    def f():
        return sum((dy * a).sum() for dy, a in zip(dys, tree(layer(x, p)[0]), strict=True))

    for got, wrt in zip(tree(dx) + tree(grads), tree(x) + tree(p), strict=True):
        assert got.shape == wrt.shape and got.dtype == np.float64
        np.testing.assert_allclose(got, slope(f, wrt, step), rtol=0, atol=1e-7)


rng = np.random.default_rng(5)


def draw(*shape):
    return rng.normal(0, 0.7, shape)


def test_gelu():
    """The slope's constants count to the last digit: cut to 0.053516, the cubic's is 1e-7 off."""
    x = np.linspace(-4, 4, 81)
    _, back = layers.gelu(x)
    # A step of the imaginary part: exact to step^2, here with a second step to cancel that.
    step = 1e-3 * 1j
    imag = [forward.gelu(x + k * step).imag / (k * 1e-3) for k in (1, 2)]
    np.testing.assert_allclose(back(np.ones(81)), (4 * imag[0] - imag[1]) / 3, rtol=0, atol=1e-10)
    check(
        lambda x, _: (lambda y, back: (y, lambda dy: (back(dy), {})))(*layers.gelu(x)),
        draw(4, 3) * 3,
        {},
    )


def test_gelu_slopes_by_another_program():
    _, back = layers.gelu(np.array([1, -1, 0.5]))
    np.testing.assert_allclose(
        back(np.ones(3)), [1.0829641, -0.0829641, 0.8673699], rtol=0, atol=6e-8
    )


def test_layer_norm():
    check(layers.layer_norm, draw(5, 4), {"g": 1 + draw(4), "b": draw(4)})


def test_layer_norm_of_nearly_equal_numbers():
    """Where eps counts."""
    check(layers.layer_norm, 0.01 * draw(5, 4), {"g": 1 + draw(4), "b": draw(4)}, step=1e-5)


@pytest.mark.parametrize("n", [1, 2])
def test_linear(n):
    params = [{"w": draw(3, 5 + i), "b": draw(5 + i)} for i in range(n)]
    check(lambda x, p: layers.linear(x, *p), draw(4, 3), params)


@pytest.mark.parametrize("n", [1, 2])
def test_linear_sum(n):
    params = [{"w": draw(5 + i, 3), "b": draw(3)} for i in range(n)]
    check(lambda xs, p: layers.linear_sum(xs, *p), [draw(4, 5 + i) for i in range(n)], params)


MASKS = [{}, {"prefix": 3}, {"window": 2}, {"prefix": 2, "window": 2}]


@pytest.mark.parametrize("how", MASKS, ids=str)
@pytest.mark.parametrize("b, s", [(1, 4), (3, 4), (2, 1)])
def test_attend(b, s, how):
    qkv = draw(b * s, 3 * N_EMBD)
    mask = attention_mask(s, s, qkv, **how)

    def layer(x, _):
        y, back = layers.attend(x, mask, HEADS)
        return y, lambda dy: (back(dy), {})

    check(layer, qkv, {})


def test_embedding_adds_the_gradients_of_a_token_that_occurs_twice():
    tokens = np.array([[1, 3, 1], [3, 3, 0]])
    p = {"wte": draw(5, 4), "wpe": draw(6, 4)}  # one position, and two tokens, are not used

    def layer(_, p):
        return layers.embedding(tokens, p)

    check(layer, None, p)
    y, back = layers.embedding(tokens, p)
    dy = draw(*y.shape)
    grads = back(dy)[1]
    np.testing.assert_allclose(grads["wte"][1], dy[0] + dy[2])
    assert not grads["wte"][[2, 4]].any() and not grads["wpe"][3:].any()


TARGETS = np.array([[2, -1, 0, 4], [-1, -1, 3, -100]])


def slow_loss(logits, targets):
    """The sum of -log softmax over the targets that are not negative."""
    rows = zip(logits, np.ravel(targets))
    return sum(np.log(np.exp(row).sum()) - row[t] for row, t in rows if t >= 0)


def test_cross_entropy():
    logits = draw(8, 5)
    loss, back = layers.cross_entropy(logits.copy(), TARGETS.ravel(), 7)
    np.testing.assert_allclose(loss, slow_loss(logits, TARGETS) / 7, rtol=0, atol=1e-12)
    got = back(1.5)
    np.testing.assert_allclose(
        got, 1.5 / 7 * slope(lambda: slow_loss(logits, TARGETS), logits), rtol=0, atol=1e-7
    )
    assert not got[TARGETS.ravel() < 0].any()


def test_cross_entropy_of_masked_rows_alone_is_0_even_where_they_are_broken():
    with np.errstate(all="raise"):
        loss, back = layers.cross_entropy(np.full((3, 5), 1e4), np.array([-1, -1, -1]), 4)
    assert loss == 0 and not back(1.0).any()


def test_cross_entropy_of_large_logits_is_finite():
    loss, back = layers.cross_entropy(np.array([[1000.0, 0], [-1000, 0]]), np.array([1, 1]), 1)
    assert loss == 1000
    np.testing.assert_allclose(back(1.0), [[1, -1], [0, 0]], atol=1e-12)


@pytest.mark.parametrize("parallel_block", [False, True])
def test_sublayers_of_a_block_and_head(parallel_block):
    params = random_params(1, parallel_block)
    p = params["blocks"][0]
    mask = attention_mask(3, 3, p["ln_1"]["g"])
    check(lambda x, p: layers.block(x, p, mask, HEADS), draw(6, N_EMBD), p)


def test_head():
    params = random_params(0)
    p = {"wte": params["wte"], "ln_f": params["ln_f"]}

    def layer(x, p):
        loss, back = layers.head(x, p, np.array([[2, -1, 10], [0, 4, -1]]), 6)
        return np.asarray(loss), back

    check(layer, draw(6, N_EMBD), p)


TOKENS = np.array([[1, 3, 3, 10], [0, 3, 7, 1]])
NEXT = np.array([[3, 3, 10, -1], [3, -1, 1, 2]])


@pytest.mark.parametrize("how", MASKS, ids=str)
@pytest.mark.parametrize("parallel_block", [False, True])
def test_the_whole_model(parallel_block, how):
    params = random_params(2, parallel_block)

    def f():
        logits = forward.gpt2(TOKENS, **params, n_head=HEADS, **how)
        return slow_loss(logits.reshape(-1, N_VOCAB), NEXT) / 6

    loss, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS, **how)
    np.testing.assert_allclose(loss, f(), rtol=0, atol=1e-12)  # so the two forward passes agree
    dx, grads = back()
    assert dx is None
    grads, flat = flatten(grads), flatten(params)
    assert grads.keys() == flat.keys()
    # One random direction per array: cheaper than every element, and each of them counts. Then a
    # few elements.
    for name, w in flat.items():
        along = np.random.default_rng(1).normal(size=w.shape)
        kept = w.copy()
        sides = []
        for step in (1e-5, -1e-5):
            w[...] = kept + step * along
            sides.append(f())
        w[...] = kept
        np.testing.assert_allclose(
            (grads[name] * along).sum(), (sides[0] - sides[1]) / 2e-5, atol=1e-7, err_msg=name
        )


def test_every_element_of_tinys_gradients():
    params = tiny_params()
    tokens, targets = np.array([[1, 3, 2, 3]]), np.array([[3, -1, 0, 1]])
    flat = flatten(params)
    grads = flatten(layers.gpt2(tokens, params, targets, 3, N_HEAD)[1]()[1])

    def f():
        return slow_loss(forward.gpt2(tokens[0], **params, n_head=N_HEAD), targets) / 3

    for name in flat:
        np.testing.assert_allclose(
            grads[name], slope(f, flat[name]), rtol=0, atol=1e-7, err_msg=name
        )


def test_tied_embedding_gradient_of_tiny_by_another_program():
    loss, back = layers.gpt2(
        np.array([[1, 3, 2]]), tiny_params(), np.array([[3, 2, 0]]), 3, N_HEAD
    )
    assert abs(loss - 2.185589775) < 5e-10
    wte = back()[1]["wte"]
    # of the head alone 1.435403, of the input alone 0.082233
    assert abs(np.linalg.norm(wte) - 1.443584) < 5e-7
    np.testing.assert_allclose(
        wte[3], [0.261802, 0.049817, -0.124766, -0.118129], rtol=0, atol=5e-7
    )


def stages(params):
    """Two pipeline stages: the tied embedding is in both."""
    first = {"wte": params["wte"], "wpe": params["wpe"], "blocks": params["blocks"][:1]}
    return first, {"blocks": params["blocks"][1:], "ln_f": params["ln_f"], "wte": params["wte"]}


def test_a_model_run_in_two_stages_gives_the_same_gradients_and_wte_gets_the_sum_of_both_ends():
    params = random_params(2)
    loss, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS)
    whole = back()[1]
    first, second = stages(params)
    x, back_first = layers.gpt2(TOKENS, first, NEXT, 6, HEADS)
    part, back_second = layers.gpt2(x, second, NEXT, 6, HEADS)
    dx, grads = back_second()
    none, grads_first = back_first(dx)
    assert none is None and part == loss
    np.testing.assert_allclose(grads["wte"] + grads_first["wte"], whole["wte"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(grads_first["wpe"], whole["wpe"], rtol=0, atol=1e-12)
    for got, expected in zip(
        grads_first["blocks"] + grads["blocks"], whole["blocks"], strict=True
    ):
        np.testing.assert_equal(got, expected)


CUTS = [[1] * 6, [2, 4], [3, 3], [5, 1], [1, 2, 3]]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_accumulated_micro_batches_equal_the_full_batch_however_unevenly_masked(cut):
    params = random_params(1)
    tokens = np.random.default_rng(3).integers(0, N_VOCAB, (6, 4))
    targets = np.random.default_rng(4).integers(0, N_VOCAB, (6, 4))
    targets[1] = -1  # with micro-batches of 1, one is fully masked
    targets[2, 1:] = -1
    total = int((targets >= 0).sum())
    loss, back = layers.gpt2(tokens, params, targets, total, HEADS)
    whole = flatten(back()[1])
    sum_loss, sums, i = 0.0, {name: np.zeros_like(g) for name, g in whole.items()}, 0
    for size in cut:
        part, back = layers.gpt2(tokens[i : i + size], params, targets[i : i + size], total, HEADS)
        sum_loss += part
        for name, g in flatten(back()[1]).items():
            sums[name] += g
        i += size
    np.testing.assert_allclose(sum_loss, loss, rtol=0, atol=1e-10)
    for name in whole:
        np.testing.assert_allclose(sums[name], whole[name], rtol=0, atol=1e-10, err_msg=name)


def test_losses_1_1_1_and_4_make_1_75_and_not_the_mean_of_means():
    """par-04: with p = exp(-loss) of the target, of two tokens."""

    def logits(loss):
        return [-loss, np.log(1 - np.exp(-loss))]

    a, _ = layers.cross_entropy(
        np.array([logits(1.0)] * 3 + [logits(9.0)]), np.array([0, 0, 0, -1]), 4
    )
    b, _ = layers.cross_entropy(np.array([logits(4.0)] * 4), np.array([-1, -1, 0, -1]), 4)
    assert abs(a + b - 1.75) < 1e-12


def same_bits(a, b):
    return all(
        (x == y).all() and x.dtype == y.dtype for x, y in zip(tree(a), tree(b), strict=True)
    )


def test_recomputation_gives_the_same_gradients_to_the_bit():
    params = random_params(2)
    again = layers.Layers(block=layers.recompute(layers.block))
    loss, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS)
    loss2, back2 = layers.gpt2(TOKENS, params, NEXT, 6, HEADS, again)
    assert loss == loss2 and same_bits(back()[1], back2()[1])


def bytes_held(function):
    gc.collect()
    tracemalloc.start()
    kept = function()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held, kept


def test_recomputation_holds_the_input_of_each_block_alone():
    params = random_params(1)
    p = params["blocks"][0]
    x = draw(400, N_EMBD)
    mask = attention_mask(100, 100, x)
    y_bytes = x.nbytes
    full, _ = bytes_held(lambda: layers.block(x, p, mask, HEADS))
    less, _ = bytes_held(lambda: layers.recompute(layers.block)(x, p, mask, HEADS))
    weights = 4 * HEADS * 100 * 100 * 8  # attention's weights of 4 sequences
    assert full > weights + 10 * y_bytes
    assert less < y_bytes + 20_000  # the output; x was there before


def test_what_back_has_used_is_freed_and_dropping_back_frees_the_rest():
    params = random_params(3)
    watched = []

    def spy(x, *args):
        y, back = layers.block(x, *args)
        watched.append(weakref.ref(back))
        return y, back

    _, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS, layers.Layers(block=spy))
    assert all(ref() is not None for ref in watched)
    back()
    gc.disable()  # by reference counts alone: a cycle would hold activations until a collection
    try:
        assert [ref() for ref in watched[1:]] == [None, None] and len(watched) == 3
        watched.clear()
        _, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS, layers.Layers(block=spy))
        del back
        assert [ref() for ref in watched] == [None] * 3
    finally:
        gc.enable()


def test_a_block_is_freed_before_the_one_below_it_runs_backward():
    params = random_params(3)
    watched, alive = [], []

    def spy(x, *args):
        y, back = layers.block(x, *args)
        held = weakref.ref(back)
        watched.append(held)

        def run(dy, back=back):
            alive.append(sum(ref() is not None for ref in watched))
            return back(dy)

        return y, run

    _, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS, layers.Layers(block=spy))
    del spy
    back()
    assert alive == [3, 2, 1]


@pytest.mark.parametrize("parallel_block", [False, True])
def test_float32_stays_float32(parallel_block):
    params = random_params(2, parallel_block, np.float32)
    loss, _ = layers.gpt2(TOKENS, params, NEXT, np.int64(6), HEADS)
    assert (
        abs(loss - layers.gpt2(TOKENS, random_params(2, parallel_block), NEXT, 6, HEADS)[0]) < 1e-5
    )
    seen = set()

    def spy(x, *args):
        y, back = layers.block(x, *args)
        seen.add(x.dtype)
        seen.add(y.dtype)

        def run(dy):
            dx, grads = back(dy)
            seen.update(a.dtype for a in [dy, dx, *tree(grads)])
            return dx, grads

        return y, run

    _, back = layers.gpt2(TOKENS, params, NEXT, 6, HEADS, layers.Layers(block=spy))
    grads = back(np.float64(1.0))[1]
    assert {a.dtype for a in tree(grads)} | seen == {np.dtype(np.float32)}


def test_gradients_lie_in_one_run_of_memory_and_share_none():
    """So that optimizers can work on flat views of them."""
    grads = tree(layers.gpt2(TOKENS, random_params(2), NEXT, 6, HEADS)[1]()[1])
    assert all(g.flags.c_contiguous and g.flags.writeable for g in grads)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(grads) for b in grads[:i])


def test_weights_and_inputs_are_not_changed():
    params = random_params(2)
    tokens, targets = TOKENS.copy(), NEXT.copy()
    layers.gpt2(tokens, params, targets, 6, HEADS)[1]()
    np.testing.assert_equal(params, random_params(2))
    assert (tokens == TOKENS).all() and (targets == NEXT).all()


def test_parameters_are_looked_up_when_used():
    """ZeRO-3 drops the whole weights between forward and backward and gathers them again."""
    params = random_params(1)
    p = params["blocks"][0]
    x = draw(4, N_EMBD)
    mask = attention_mask(4, 4, x)
    y, back = layers.block(x, p, mask, HEADS)
    dy = draw(4, N_EMBD)
    expected = layers.block(x, random_params(1)["blocks"][0], mask, HEADS)[1](dy)
    refs = [weakref.ref(a) for a in tree(p)]
    fresh = random_params(1)["blocks"][0]
    for name in ("ln_1", "ln_2"):
        p[name].clear()
    for name in ("attn", "mlp"):
        for linear in p[name].values():
            linear.clear()
    assert not any(ref() is not None for ref in refs)  # nothing else held them
    for name in ("ln_1", "ln_2"):
        p[name].update(fresh[name])
    for name in ("attn", "mlp"):
        for key, linear in p[name].items():
            linear.update(fresh[name][key])
    assert same_bits(back(dy), expected)


def test_pairs_are_applied_forward_and_their_conjugates_backward():
    """enter: once each way, and forward again for the weights' gradient; leave: once each way."""
    calls = []

    def named(name, factor):
        def function(x):
            calls.append(name)
            return x * factor

        return function

    enter = layers.Pair(named("f", 2.0), named("f back", 2.0))
    leave = layers.Pair(named("g", 3.0), named("g back", 3.0))
    p = random_params(1)["blocks"][0]
    x = draw(4, N_EMBD)
    mask = attention_mask(4, 4, x)
    y, back = layers.block(x, p, mask, HEADS, enter, leave)
    assert calls == ["f", "g"] * 2
    calls.clear()
    back(np.ones_like(y))
    assert calls == ["g back", "f back", "f"] * 2
    # A pair that multiplies by 2 and 3 both ways is its own conjugate, so finite differences hold
    # for it too; a bias is outside of leave.
    check(lambda x, p: layers.block(x, p, mask, HEADS, enter, leave), x, p)
