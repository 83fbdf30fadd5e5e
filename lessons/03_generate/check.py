"""The checks of lesson 3."""

import math

import numpy as np

from lessons.checking import brief, same, unchanged


def masked(causal_mask, n_q, n_kv):
    right = np.array([[int(j <= n_kv - n_q + i) for j in range(n_kv)] for i in range(n_q)])
    column, row = np.arange(n_q)[:, None], np.arange(n_kv)
    mistakes = {
        "query 0 is not token 0: with a cache it comes after n_kv - n_q others": row <= column,
        "a query reads nothing that comes after it, and other new tokens do": row >= 0 * column,
        "a token reads itself, too": row < column + n_kv - n_q,
        "a query reads what came before it: which way does the triangle go?": (
            row >= column + n_kv - n_q
        ),
        "1 is where a query may read, 0 where it may not": right == 0,
    }
    got = causal_mask(n_q, n_kv)
    dtype = got.dtype if isinstance(got, np.ndarray) and got.dtype.kind in "biu" else int
    if getattr(got, "dtype", None) == np.float64:  # 0.0 and 1.0, as np.tri has them
        dtype = np.float64
    same(
        got,
        right.astype(dtype),
        f"causal_mask({n_q}, {n_kv})",
        {text: value.astype(dtype) for text, value in mistakes.items()},
    )


def check_chunk_after_cache(causal_mask):
    masked(causal_mask, 2, 5)
    masked(causal_mask, 4, 7)
    masked(causal_mask, 3, 4)


def check_square(causal_mask):
    for n in (1, 2, 3, 5):
        masked(causal_mask, n, n)


def check_single_token_decode(causal_mask):
    for n_kv in (2, 4, 9):
        masked(causal_mask, 1, n_kv)


def weights_of(d, n_ctx, seed):
    rng = np.random.default_rng(seed)
    sizes = {"wpe": (n_ctx, d), "w_q": (d, d), "w_k": (d, d), "w_v": (d, d)}
    return {name: rng.normal(size=size) for name, size in sizes.items()}


SMALL = {
    "wpe": np.array([[0.0, 1], [1, 0], [1, 1], [2, 0], [0, 2]]),
    "w_q": np.eye(2),
    "w_k": np.array([[0.0, 1], [1, 0]]),
    "w_v": np.array([[1.0, 2], [3, 1]]),
}
FIVE = np.array([[1.0, 0], [0, 1], [1, 1], [2, 1], [0, 1]])


def whole(x, wpe, w_q, w_k, w_v):  # -> [n, d], keys, values: token by token, no cache
    n, d = x.shape
    x = x + wpe[:n]
    q, k, v = (
        np.array([[math.fsum(row * w[:, c]) for c in range(d)] for row in x])
        for w in (w_q, w_k, w_v)
    )
    out = np.zeros((n, d))
    for t in range(n):
        scores = [math.fsum(q[t] * k[j]) / math.sqrt(d) for j in range(t + 1)]
        parts = [math.exp(score - max(scores)) for score in scores]
        for j in range(t + 1):
            out[t] += parts[j] / math.fsum(parts) * v[j]
    return out, k, v


def misled(pieces, weights, restart=False, forget=False, mask="causal", root=True, places=True):
    """What a misunderstanding gives for each piece of the text."""
    w, d = weights, pieces[0].shape[1]
    k = v = np.zeros((0, d))
    outs, past = [], 0
    for x in pieces:
        n, kept = len(x), len(k)
        x = x + places * (w["wpe"][:n] if restart else w["wpe"][past : past + n])
        k, v = np.concatenate([k, x @ w["w_k"]]), np.concatenate([v, x @ w["w_v"]])
        scores = x @ w["w_q"] @ k.T / (d**0.5 if root else 1)
        offset = {"causal": kept, "corner": 0, "none": n + kept, "strict": kept - 1}[mask]
        scores = np.where(np.tri(n, n + kept, offset), scores, -1e30)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        outs.append(scores / scores.sum(axis=1, keepdims=True) @ v)
        if forget:
            k, v = k[kept:], v[kept:]
        past += n
    return outs


def stepped(cached_step, x, cuts, weights):
    """Run it on a text in pieces, and refuse a wrong output or a wrong cache."""
    pieces = np.split(x.copy(), cuts)
    out, k, v = whole(x, **weights)
    wrong = {
        "positions go on where the cache ends: wpe[past : past + n]": {"restart": True},
        "the past is lost: the new cache has the old keys and values, too": {"forget": True},
        "the new tokens come after the cached ones: query i reads keys up to past + i": {
            "mask": "corner"
        },
        "new tokens read what comes after them: they need a mask, too": {"mask": "none"},
        "a token reads itself, too: its key belongs to the keys": {"mask": "strict"},
        "the scores are not divided by sqrt(d)": {"root": False},
        "where are the positions? A row of wpe is added to each token": {"places": False},
    }
    mistakes = {text: misled(pieces, weights, **how) for text, how in wrong.items()}
    past, cache = 0, (np.zeros((0, x.shape[1])), np.zeros((0, x.shape[1])))
    for i, piece in enumerate(pieces):
        n = len(piece)
        what = f"a text in pieces of {[len(p) for p in pieces]}, piece {i}"
        with unchanged(piece, cache, weights):
            got = cached_step(piece, cache, **weights)
        for pair in (got, got[1] if isinstance(got, (tuple, list)) and len(got) == 2 else None):
            if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
                raise AssertionError(
                    f"{what}: expected an output and a pair of keys and values, got {brief(got)}"
                )
        same(
            got[0],
            out[past : past + n],
            f"{what}: the output",
            {text: outs[i] for text, outs in mistakes.items()},
        )
        past += n
        for name, there, right in (("keys", got[1][0], k), ("values", got[1][1], v)):
            same(
                there,
                right[:past],
                f"{what}: the {name} of the new cache",
                {
                    "only those of the new tokens: the past belongs to it": right[past - n : past],
                    "the new ones come after the old ones": np.concatenate(
                        [right[past - n : past], right[: past - n]]
                    ),
                },
            )
        cache = tuple(got[1])


def check_no_cache(cached_step):
    stepped(cached_step, FIVE, [], SMALL)


def check_one_by_one(cached_step):
    stepped(cached_step, FIVE, [1, 2, 3, 4], SMALL)


def check_prompt_then_chunk(cached_step):
    stepped(cached_step, FIVE, [3], SMALL)


def check_any_cut(cached_step):
    rng = np.random.default_rng(0)
    for d, n, cuts in [(3, 7, [2, 3, 6]), (1, 4, [1]), (4, 6, [5]), (3, 8, [3, 6])]:
        stepped(cached_step, rng.normal(size=(n, d)), cuts, weights_of(d, 10, seed=d))


def check_two_ways_on_from_one_cache(cached_step):
    """A cache may be used twice, such as for two answers to one question."""
    rng, weights = np.random.default_rng(1), weights_of(3, 9, seed=7)
    x = rng.normal(size=(3, 6, 3))  # [texts, n, d]
    x[:, :4] = x[0, :4]
    _, cache = cached_step(x[0, :4], (np.zeros((0, 3)), np.zeros((0, 3))), **weights)
    for text in x:
        with unchanged(cache):
            got, _ = cached_step(text[4:], cache, **weights)
        same(got, whole(text, **weights)[0][4:], "a second text that goes on from the same cache")


def fewest(probs, p):  # one token after another, no equal ones at the end
    kept = np.zeros_like(probs)
    for i in sorted(range(len(probs)), key=lambda i: -probs[i]):
        if math.fsum(kept) < p:
            kept[i] = probs[i]
    return kept / math.fsum(kept)


def cut_off(top_p, probs, p, what=None):
    probs = np.array(probs)
    order = np.argsort(-probs, kind="stable")
    total = np.cumsum(probs[order])

    def kept(tokens, divide=True):
        result = np.zeros_like(probs)
        result[tokens] = probs[tokens]
        return result / (result.sum() or 1) if divide else result

    right = fewest(probs, p)
    below, above = order[total <= p], order[np.concatenate([[True], total[:-1] <= p])]
    mistakes = {
        "the token that crosses p is kept, too": kept(below),
        "the token that crosses p is kept, too: the total has to reach p": kept(order[total < p]),
        "one token too many: exactly p is enough": kept(above),
        "the likeliest tokens are kept, not the first of the vocabulary": kept(
            np.flatnonzero(np.cumsum(probs) - probs < p)
        ),
        "the kept ones have to go back to the places of their tokens": -np.sort(-right),
        "what is kept has to have the sum 1": right * probs[right > 0].sum(),
        "that is a threshold for each token: p is for all of them together": kept(probs >= p),
        "with p = 1 nothing may get lost": kept(order[:1]),
        "nothing was cut off": probs,
    }
    with unchanged(probs), np.errstate(all="ignore"):
        got = top_p(probs, p)
    same(got, right, what or f"top_p({probs.tolist()}, {p})", mistakes)


def check_crossing_token_is_kept(top_p):
    cut_off(top_p, [0.125, 0.5, 0.25, 0.125], 0.6)
    cut_off(top_p, [0.05, 0.1, 0.15, 0.7], 0.8)


def check_exact_total(top_p):
    cut_off(top_p, [0.125, 0.5, 0.25, 0.125], 0.75)
    cut_off(top_p, [0.125, 0.5, 0.25, 0.125], 0.5)


def check_small_p(top_p):
    cut_off(top_p, [0.125, 0.5, 0.25, 0.125], 0.1)
    cut_off(top_p, [0.0, 0.0, 1.0], 0.001)


def check_sorted_input(top_p):
    cut_off(top_p, [0.5, 0.25, 0.125, 0.125], 0.6)
    cut_off(top_p, [0.0625, 0.1875, 0.25, 0.5], 0.6)


def check_p_of_one_keeps_all(top_p):
    for n in (4, 10, 49):  # 10 times 0.1, added up, is 0.9999999999999999
        cut_off(top_p, [1 / n] * n, 1.0, f"top_p of {n} times 1/{n}, with p = 1")
    cut_off(top_p, [0.25, 0.0, 0.75], 1.0)


def check_as_few_as_needed_of_equal_ones(top_p):
    for probs, p, n in [([0.25] * 4, 0.5, 2), ([0.125, 0.5, 0.125, 0.125, 0.125], 0.7, 3)]:
        probs = np.array(probs)
        got = top_p(probs.copy(), p)
        kept = got[got > 0] if isinstance(got, np.ndarray) else ()
        right = -np.sort(-probs)[:n]
        same(
            np.array([len(kept)]),
            np.array([n]),
            f"tokens kept by top_p({probs.tolist()}, {p})",
            {"those that are as likely as the last one are not kept": np.array([len(probs)])},
        )
        same(got, np.where(got > 0, probs / right.sum(), 0.0), f"top_p({probs.tolist()}, {p})")


def check_many_distributions(top_p):
    rng = np.random.default_rng(2)
    for v in (2, 7, 50):
        for _ in range(20):
            probs = rng.dirichlet(np.full(v, 0.5))
            cut_off(top_p, probs, float(rng.uniform(0.05, 0.95)), f"of a random [{v}]")
