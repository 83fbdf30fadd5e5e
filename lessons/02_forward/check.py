"""The checks of lesson 2."""

import math

import numpy as np

from lessons.checking import same, unchanged


def labelled(h, n, e):  # -> [h, n, e]; each number says where it stands: head, token, place
    return 100.0 * np.arange(h)[:, None, None] + 10.0 * np.arange(n)[:, None] + np.arange(e)


def joined(merge_heads, h, n, e):
    y = labelled(h, n, e)
    right = np.array([[y[i, t, j] for i in range(h) for j in range(e)] for t in range(n)])
    mistakes = {
        "a row has several tokens of one head: reshape alone moves nothing": y.reshape(n, h * e),
        "the heads are interleaved: a head's numbers stay together": y.transpose(1, 2, 0).reshape(
            n, h * e
        ),
        "heads are not averaged: all of their numbers stay": np.tile(y.mean(axis=0), h),
        "heads are not summed: all of their numbers stay": np.tile(y.sum(axis=0), h),
        "head 0 comes first": np.concatenate(y[::-1], axis=1),
        "tokens are in the wrong order": right[::-1],
    }
    with unchanged(y):
        got = merge_heads(y)
    same(got, right, f"merge_heads of [{h}, {n}, {e}], numbers 100 head + 10 token", mistakes)


def check_token_rows(merge_heads):
    joined(merge_heads, 2, 2, 2)
    joined(merge_heads, 3, 2, 4)


def check_more_tokens_than_heads(merge_heads):
    joined(merge_heads, 2, 3, 1)
    joined(merge_heads, 3, 5, 2)


def check_one_head_or_one_token(merge_heads):
    joined(merge_heads, 1, 2, 2)
    joined(merge_heads, 4, 1, 3)


def check_heads_of_a_transposed_array(merge_heads):
    """As they lie in memory in the real attention: a view of [n, h, e]."""
    y = np.arange(30.0).reshape(5, 3, 2)
    same(
        merge_heads(y.transpose(1, 0, 2)),
        y.reshape(5, 6),
        "merge_heads of a view with the shape [3, 5, 2]",
        {"the order in memory is not that of the axes": y.transpose(1, 0, 2).reshape(5, 6)},
    )


def weights(scores):
    largest = max(scores)
    parts = [math.exp(score - largest) for score in scores]
    return [part / math.fsum(parts) for part in parts]


def attention(q, k, v, first=lambda t: 0, last=lambda t: t, scale=math.sqrt):  # one by one
    n, e = q.shape
    out = np.zeros((n, v.shape[1]))
    for t in range(n):
        keys = range(first(t), last(t) + 1)
        scores = [math.fsum(q[t] * k[j]) / scale(e) for j in keys]
        for j, weight in zip(keys, weights(scores) if keys else ()):
            out[t] += weight * v[j]
    return out


def misled(q, k, v):
    """{misunderstanding: what it gives}"""
    n, e = q.shape
    scores, seen = q @ k.T / e**0.5, np.tri(n)

    def softmax(x, axis=1):
        x = np.exp(x - x.max(axis=axis, keepdims=True))
        return x / x.sum(axis=axis, keepdims=True)

    masked = np.where(seen, scores, -1e30)
    with np.errstate(all="ignore"):
        late = np.exp(scores - scores.max(axis=1, keepdims=True)) * seen
        late = late / late.sum(axis=1, keepdims=True) @ v
    return {
        "the largest score was looked for before the mask: if that of a later token is far "
        "larger, all that are left become exp(-many) = 0, and 0 / 0 is nan": late,
        "the weights of a token do not add up to 1: mask before the softmax": (
            softmax(scores) * seen @ v
        ),
        "a masked score is not 0 but -inf: exp(0) is 1": softmax(scores * seen) @ v,
        "a token reads itself, too": softmax(np.where(np.tri(n, k=-1), scores, -1e30)) @ v,
        "a token reads what comes after it: which triangle is it?": (
            softmax(np.where(seen.T, scores, -1e30)) @ v
        ),
        "no token is masked": softmax(scores) @ v,
        "the scores are not divided by sqrt(e)": attention(q, k, v, scale=lambda e: 1.0),
        "the scores are divided by e: by its square root": attention(q, k, v, scale=float),
        "the scores are divided by sqrt(n): e is the size of a query": (
            attention(q, k, v, scale=lambda _: math.sqrt(n))
        ),
        "softmax goes over the keys, a row of the scores": softmax(masked, axis=0) @ v,
        "queries and keys are swapped": attention(k, q, v),
        "exp overflows: take the largest score of the row off first": np.nan * attention(q, k, v),
    }


def attended(causal_attention, q, k, v, what):
    with unchanged(q, k, v):
        got = causal_attention(q, k, v)
    same(got, attention(q, k, v), what, misled(q, k, v))


def check_equal_scores_give_means(causal_attention):
    zero = np.zeros((3, 2))
    v = np.array([[1.0], [3.0], [8.0]])
    attended(causal_attention, zero, zero, v, "with scores of 0, v = 1, 3, 8")


def check_scale(causal_attention):
    q, k = np.zeros((2, 4)), np.zeros((2, 4))
    q[1, 0] = k[0, 0] = 2.0
    attended(causal_attention, q, k, np.array([[1.0], [0.0]]), "with e = 4, a score of 4/sqrt(4)")


def check_weights_sum_to_one(causal_attention):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 3))
    attended(causal_attention, q, k, np.ones((5, 2)), "with v = 1 everywhere")


def check_future_has_no_influence(causal_attention):
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(3, 6, 4))
    for t in range(5):
        before = causal_attention(q, k, v)
        k2, v2, q2 = k.copy(), v.copy(), q.copy()
        k2[t + 1 :], v2[t + 1 :], q2[t + 1 :] = 3.0, 100.0, -2.0
        after = causal_attention(q2, k2, v2)
        same(after[: t + 1], before[: t + 1], f"after a change of what follows token {t}")
        same(before[: t + 1], attention(q, k, v)[: t + 1], f"tokens 0 to {t} of 6")


def check_unequal_sizes(causal_attention):
    rng = np.random.default_rng(2)
    for n, e, f in [(1, 3, 2), (4, 2, 5), (7, 5, 1), (3, 6, 3)]:
        q, k, v = rng.normal(size=(n, e)), rng.normal(size=(n, e)), rng.normal(size=(n, f))
        attended(causal_attention, 2 * q, k, v, f"with q, k [{n}, {e}], v [{n}, {f}]")


def check_large_scores(causal_attention):
    q = np.full((4, 2), 30.0)
    v = np.array([[1.0, 0.0], [3.0, 0.0], [8.0, 0.0], [0.0, 4.0]])
    with np.errstate(all="ignore"):
        for sign in (1, -1):
            attended(causal_attention, q, sign * q, v, f"with scores of {sign * 1273}, all equal")
        q[::2] *= -1
        attended(causal_attention, q, abs(q), v, "with rows of scores of -1273 and 1273")
        k = np.array([[0.0], [1.0], [-2000.0], [5000.0]])
        what = "with scores of 5000 for the last key, which the first three tokens do not see"
        attended(causal_attention, np.ones((4, 1)), k, v, what)


def nats(row, target):
    largest = max(row)
    return largest + math.log(math.fsum(math.exp(x - largest) for x in row)) - row[target]


def loss(logits, ids, shift=1):  # one prediction after another
    terms = [
        nats(logits[t], ids[t + shift]) for t in range(len(ids)) if 0 <= t + shift < len(ids)
    ]
    return math.fsum(terms) / max(1, len(terms))


def lost(lm_loss, logits, ids, what):
    n, right = len(ids), loss(logits, ids)
    with np.errstate(all="ignore"):
        rows = [logits[:-1] - top.max() for top in (logits, logits[:-1])]
        together = [
            np.mean(np.log(np.exp(x).sum(axis=1)) - x[np.arange(n - 1), ids[1:]]) for x in rows
        ]
    mistakes = {
        "the largest logit of all rows was taken off: each row needs its own": together[0],
        "the largest logit of all rows was taken off: each row needs its own largest": together[1],
        "row t is compared with token t: it predicts token t + 1": loss(logits, ids, 0),
        "the targets are shifted twice: row t predicts token t + 1": loss(logits, ids, 2),
        "row t is compared with token t - 1: it predicts token t + 1": loss(logits, ids, -1),
        "the mean is over n - 1 predictions, not over n tokens": right * (n - 1) / n,
        "this is the sum: the loss is the mean": right * (n - 1),
        "this is in bits: the logarithm is the natural one": right / math.log(2),
        "the sign is wrong: a loss is positive": -right,
        "exp overflows: take the largest logit of the row off first": math.nan,
        "this counts a prediction of token 0 by the last row, which np.roll makes": (
            loss(np.concatenate([logits, logits[:1]]), np.concatenate([ids, ids[:1]]))
        ),
    }
    with unchanged(logits, ids), np.errstate(all="ignore"):
        got = lm_loss(logits, ids)
    same(got, right, what, mistakes)


IDS = np.array([0, 1, 2, 1])


def onehot(ids, scale, v=3):  # [n] -> [n, v]
    return scale * (np.arange(v) == ids[:, None])


def ahead(ids, scale, v=3):  # perfect: row t knows token t + 1
    logits = np.zeros((len(ids), v))
    logits[:-1] = onehot(ids[1:], scale, v)
    return logits


def check_uniform(lm_loss):
    lost(lm_loss, np.zeros((4, 3)), IDS, "of equal logits, v = 3, n = 4")


def check_perfect_next_token(lm_loss):
    lost(lm_loss, ahead(IDS, 10.0), IDS, "of a model that knows the next token")


def check_copying_is_punished(lm_loss):
    lost(lm_loss, onehot(IDS, 10.0), IDS, "of a model that repeats the token it was given")


def check_large_logits(lm_loss):
    lost(lm_loss, ahead(IDS, 1000.0), IDS, "of a model that is very sure, and right")
    lost(lm_loss, onehot(IDS, 1000.0), IDS, "of a model that is very sure, and wrong")
    lost(lm_loss, ahead(IDS, 1.0) - 5000.0, IDS, "with 5,000 taken from all logits")
    rows = np.array([[1000.0, 1000.0], [0.0, 0.0], [-3000.0, -2999.0], [0.0, 0.0]])
    lost(lm_loss, rows, np.array([0, 1, 0, 1]), "with rows of logits about 1000, 0 and -3000")


def check_unequal_sizes_of_a_loss(lm_loss):
    rng = np.random.default_rng(3)
    for n, v in [(2, 5), (3, 4), (8, 3), (5, 11)]:
        logits, ids = rng.normal(0, 3, (n, v)), rng.integers(0, v, n)
        lost(lm_loss, logits, ids, f"of random logits [{n}, {v}]")


def check_last_row_predicts_nothing(lm_loss):
    rng = np.random.default_rng(4)
    logits, ids = rng.normal(0, 3, (6, 4)), rng.integers(0, 4, 6)
    logits[-1] *= 1000
    lost(lm_loss, logits, ids, "with large logits in the last row")
