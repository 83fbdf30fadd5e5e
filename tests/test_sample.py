"""sample.py against distributions worked out by hand, and one token at a time without a cache."""

import math
from collections import Counter

import numpy as np
import pytest

from gpt_numpy import sample
from gpt_numpy.gpt2 import gpt2
from gpt_numpy.sample import generate, probabilities
from tests.test_gpt2 import HEADS, N_CTX, N_VOCAB, random_params, slow_gpt2

LOGITS = [0.1, 2.0, -1.0, 2.0]


@pytest.fixture(autouse=True)
def no_floating_point_surprise():
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        yield


def softmax(logits, temperature=1.0):
    largest = max(logits)
    weights = [math.exp((x - largest) / temperature) for x in logits]
    return [w / math.fsum(weights) for w in weights]


@pytest.mark.parametrize("temperature", [0.5, 1, 3, np.float64(1.5)])
def test_probabilities_are_the_softmax_of_logits_over_temperature(temperature):
    np.testing.assert_allclose(
        probabilities(LOGITS, temperature), softmax(LOGITS, temperature), rtol=1e-12
    )


def test_temperature_0_is_the_first_of_the_likeliest():
    for more in ({}, {"top_k": 3}, {"top_p": 0.1}, {"top_k": 1, "top_p": 1.0}):
        assert probabilities(LOGITS, 0, **more).tolist() == [0, 1, 0, 0]
    assert probabilities([3.0, 1.0, 3.0], 0.0).tolist() == [1, 0, 0]


@pytest.mark.parametrize("temperature", [1e-8, 1e-300, 5e-324])
def test_a_tiny_temperature_leaves_the_ties_and_stays_finite(temperature):
    assert probabilities(LOGITS, temperature).tolist() == [0, 0.5, 0, 0.5]
    assert probabilities(LOGITS, temperature, top_k=3, top_p=0.9).tolist() == [0, 0.5, 0, 0.5]


def test_an_infinite_temperature_makes_all_that_are_left_alike():
    assert probabilities(LOGITS, math.inf).tolist() == [0.25] * 4
    np.testing.assert_allclose(probabilities(LOGITS, math.inf, top_k=3), [1 / 3, 1 / 3, 0, 1 / 3])
    assert probabilities(LOGITS, math.inf, top_p=0.5).tolist() == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize("top_k", [None, 0, 4, 10])
def test_top_k_of_none_0_or_all_is_off(top_k):
    np.testing.assert_allclose(probabilities(LOGITS, top_k=top_k), softmax(LOGITS), rtol=1e-12)


def test_top_k():
    np.testing.assert_allclose(
        probabilities([1.0, 3, 2, 0], top_k=2), [0, *softmax([3, 2]), 0], rtol=1e-12
    )
    assert probabilities([1.0, 3, 2, 0], top_k=1).tolist() == [0, 1, 0, 0]


def test_what_ties_with_the_kth_is_kept():
    np.testing.assert_allclose(probabilities([1.0, 1, 1, 0], top_k=2), [1 / 3, 1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(probabilities(LOGITS, top_k=1), [0, 0.5, 0, 0.5])


FEW = np.log([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    "top_p, left",
    [
        (1e-9, [3]),
        (0.39, [3]),
        (0.41, [2, 3]),
        (0.69, [2, 3]),
        (0.71, [1, 2, 3]),
        (0.91, [0, 1, 2, 3]),
        (1, range(4)),
    ],
)
def test_top_p_leaves_the_fewest_that_reach_it(top_p, left):
    expected = [p if i in left else 0 for i, p in enumerate([0.1, 0.2, 0.3, 0.4])]
    np.testing.assert_allclose(
        probabilities(FEW, top_p=top_p), np.array(expected) / sum(expected), rtol=1e-12
    )


def test_top_p_takes_of_equals_the_first():
    assert probabilities([0.0, 0, 0, 0], top_p=0.4).tolist() == [0.5, 0.5, 0, 0]
    # so many that a sort which is not stable would mix them
    p = probabilities([0.0, 1.0] * 500, top_p=0.3)
    assert set(np.flatnonzero(p)) == set(range(1, 2 * np.count_nonzero(p), 2))


def test_temperature_comes_before_top_p_and_top_k_too():
    # At temperature 2 the probabilities are as their roots: 0.163, 0.230, 0.282, 0.325; 0.5 takes
    # two. Top-p before that would take two of 0.4 and 0.3 as well, but 0.65 takes two then and
    # three now.
    roots = np.sqrt([0.2, 0.3, 0.4])
    np.testing.assert_allclose(
        probabilities(FEW, 2, top_p=0.65), [0, *roots / roots.sum()], rtol=1e-12
    )
    # Top-k first: of 0.3 and 0.4 alone, 0.4 is 0.571 and reaches 0.5; of all four it is 0.4 and
    # does not.
    assert probabilities(FEW, top_k=2, top_p=0.5).tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(probabilities(FEW, top_p=0.5), [0, 0, 3 / 7, 4 / 7], rtol=1e-12)


def test_the_logits_are_not_changed():
    logits = np.array(LOGITS)
    probabilities(logits, 0.7, 2, 0.9)
    assert logits.tolist() == LOGITS


@pytest.mark.parametrize(
    "how, name",
    [
        *[({"temperature": t}, "temperature") for t in (-1, -1e-9, math.nan, -math.inf)],
        *[({"top_p": p}, "top_p") for p in (0, -0.1, 1.1, math.nan, math.inf)],
        ({"top_k": -1}, "top_k"),
        ({"temperature": 0, "top_k": -1}, "top_k"),
    ],
)
def test_settings_that_mean_nothing_are_refused(how, name):
    with pytest.raises(ValueError, match=f"^{name} is .*expected"):
        probabilities(LOGITS, **how)


@pytest.mark.parametrize("bad", [[0, math.nan, 1], [0, math.inf, 1], [-math.inf] * 3])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_of_a_broken_model_are_refused(bad, temperature):
    with pytest.raises(ValueError, match="logits are not finite"):
        probabilities(bad, temperature)


@pytest.mark.parametrize("scale", [1, 8])
def test_50257_float32_logits_never_fail(scale):
    """A float32 softmax does not add up to 1 well enough for NumPy's choice; a float32 running sum
    ends below 1.
    """
    for seed in range(100):
        rng = np.random.default_rng(seed)
        logits = (scale * rng.standard_normal(50257, np.float32)).astype(np.float32)
        how = [{}, {"top_k": 40}, {"top_p": 0.9}, {"temperature": 0.7}][seed % 4]
        p = probabilities(logits, **how)
        assert p.dtype == np.float64 and abs(p.sum() - 1) < 1e-12
        i = rng.choice(len(p), p=p)
        assert 0 <= i < 50257 and p[i] > 0


def run(params, tokens, n, **how):
    return list(generate(params, HEADS, tokens, n, **how))


def test_temperature_0_takes_the_argmax_of_plain_loops():
    params = random_params()
    tokens = [3, 1]
    for _ in range(4):
        tokens.append(int(slow_gpt2(tokens, params, HEADS)[-1].argmax()))
    assert run(params, [3, 1], 4, temperature=0) == tokens[2:]


@pytest.mark.parametrize("prompt", [[4], list(range(N_CTX - 1)), list(range(N_CTX))], ids=len)
@pytest.mark.parametrize("cached", [True, False])
def test_past_the_context_the_older_half_is_dropped(monkeypatch, prompt, cached):
    """Against the documented rule, a full pass for each token."""
    seen = []

    def spy(logits, *how):
        seen.append(logits)
        return probabilities(logits, *how)

    monkeypatch.setattr(sample, "probabilities", spy)
    params = random_params()
    new = run(params, prompt, 3 * N_CTX, temperature=2.0, seed=1, cached=cached)
    tokens = list(prompt)
    for token, logits in zip(new, seen, strict=True):
        if len(tokens) == N_CTX + 1:
            tokens = tokens[-(N_CTX // 2) :]
        np.testing.assert_allclose(
            logits, gpt2(tokens, **params, n_head=HEADS)[-1], rtol=0, atol=1e-10
        )
        tokens.append(token)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_tokens_with_and_without_the_cache(seed):
    params = random_params(seed=seed)
    how = {"seed": seed, "temperature": 1.3, "top_k": 9, "top_p": 0.95}
    first = run(params, [1, 2], 4 * N_CTX, **how)
    assert (
        first
        == run(params, [1, 2], 4 * N_CTX, **how)
        == run(params, [1, 2], 4 * N_CTX, **how, cached=False)
    )
    assert all(type(i) is int and 0 <= i < N_VOCAB for i in first)
    assert first != run(params, [1, 2], 4 * N_CTX, **{**how, "seed": seed + 100})


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_a_prompt_in_chunks_gives_the_same_tokens(monkeypatch, chunk):
    params = random_params()
    expected = run(params, [5, 1, 9, 2, 0], 12, seed=1, cached=False)
    monkeypatch.setattr(sample, "CHUNK", chunk)
    assert run(params, [5, 1, 9, 2, 0], 12, seed=1) == expected


def test_the_cache_reads_each_token_once(monkeypatch):
    read = []

    def spy(tokens, **how):
        read.append(len(tokens))
        return gpt2(tokens, **how)

    monkeypatch.setattr(sample, "gpt2", spy)
    run(random_params(), [5, 1, 9], 4, temperature=0)
    assert read == [3, 1, 1, 1]


def test_without_a_seed_two_runs_differ():
    params = random_params()
    how = {"temperature": 100.0}
    assert run(params, [1], 40, **how) != run(params, [1], 40, **how)


def test_tokens_come_as_often_as_the_model_says():
    params = random_params()
    p = softmax(slow_gpt2([3, 1], params, HEADS)[-1].tolist(), 1.5)
    n = 1500
    counts = Counter(run(params, [3, 1], 1, seed=seed, temperature=1.5)[0] for seed in range(n))
    chi2 = sum((counts[i] - n * q) ** 2 / (n * q) for i, q in enumerate(p) if n * q > 5)
    # of at most 10 degrees of freedom: by chance 1 time in 10,000, and the seeds are fixed
    assert chi2 < 35


def test_a_context_of_one_token():
    params = random_params()
    params["wpe"] = params["wpe"][:1]
    expected = []
    for _ in range(4):
        expected.append(
            int(slow_gpt2([expected[-1] if expected else 3], params, HEADS)[-1].argmax())
        )
    for cached in (True, False):
        assert run(params, [3], 4, temperature=0, cached=cached) == expected


def test_no_tokens_at_all():
    assert run(random_params(), [1], 0) == []


def test_the_prompt_is_not_changed_and_may_be_an_array():
    prompt = [3, 1]
    expected = run(random_params(), prompt, 9, seed=0)
    assert prompt == [3, 1]
    assert run(random_params(), np.array(prompt), 9, seed=0) == expected


@pytest.mark.parametrize("prompt, n, message", [
    (list(range(N_CTX + 1)), 1, "prompt has 8 tokens, expected 1 to 7"),
    (list(range(N_CTX + 1)), 0, "prompt has 8 tokens, expected 1 to 7"),
    ([], 1, "prompt has 0 tokens, expected 1 to 7"),
    ([1], -1, "n is -1, expected 0 or more"),
])  # fmt: skip
def test_prompts_and_lengths_that_cannot_be(prompt, n, message):
    with pytest.raises(ValueError, match=message):
        run(random_params(), prompt, n)
