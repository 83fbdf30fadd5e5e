"""Lesson 3: write the cache and the sampling yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 3` says what passes.
Hints are at the end. Everything is in float64.
"""

import numpy as np  # noqa: F401


def causal_mask(n_q, n_kv):
    """Which keys each query may read, when the queries are the newest n_q of n_kv tokens.

    Query i is token n_kv - n_q + i of the text, and reads every token up to itself.
    n_q, n_kv: numbers, n_q at most n_kv -> [n_q, n_kv], 1 (or True) where it may, else 0 (False)

    >>> causal_mask(2, 5).astype(int).tolist()
    [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    """
    raise NotImplementedError("compare the positions of the queries with those of the keys")


def cached_step(x, cache, wpe, w_q, w_k, w_v):
    """Causal attention of n new tokens, one head, that come after those in the cache.

    The first new token is at position `past`, the number of tokens in the cache. First the
    embedding of its position, a row of wpe, is added to each token of x. The products with w_q,
    w_k and w_v of that are its query, key and value; scores are divided by sqrt(d). The cache has
    the keys and the values of all tokens so far; the new cache has those of these tokens, too.
    However a text is cut into calls, the outputs are the same.
    x: [n, d]; cache: a pair of keys [past, d] and values [past, d], which stay as they are;
    wpe: [n_ctx, d]; w_q, w_k, w_v: [d, d] -> [n, d], and the new pair of [past + n, d]

    >>> x, one, nothing = np.array([[1.0], [4.0]]), np.array([[1.0]]), np.zeros((0, 1))
    >>> weights = {"wpe": np.zeros((8, 1)), "w_q": 0 * one, "w_k": one, "w_v": one}
    >>> first, cache = cached_step(x, (nothing, nothing), **weights)  # queries of 0: the means
    >>> then, cache = cached_step(np.array([[7.0]]), cache, **weights)
    >>> first.round(6).tolist(), then.round(6).tolist(), cache[0].tolist()
    ([[1.0], [2.5]], [[4.0]], [[1.0], [4.0], [7.0]])
    """
    raise NotImplementedError("positions, q k v, a longer cache, a mask, softmax, values")


def top_p(probs, p):
    """Keep the fewest likeliest tokens whose probabilities reach p together; the rest gets 0.

    Exactly p is reached. One token is kept at least, and with p = 1 all are, though a sum of
    floats may come out below 1. Of tokens that are equally likely, any may be the one to stay.
    What is kept is divided by its sum, and stays at its token's place.
    probs: [v], with the sum 1; p: more than 0, at most 1 -> [v], with the sum 1

    >>> top_p(np.array([0.125, 0.5, 0.25, 0.125]), 0.75).round(3).tolist()
    [0.0, 0.667, 0.333, 0.0]
    """
    raise NotImplementedError("sort, add up, keep those before p is reached, put them back")


# Hints
#
# causal_mask  np.arange(n_kv) are the keys' positions. Which are the queries'? As a column, they
#              compare with all keys at once. For one new token it is a row of ones.
# cached_step  len(cache[0]) is past. np.concatenate makes the longer cache: add the new keys
#              before the scores are computed, since a token reads itself. You have causal_mask.
# top_p        np.argsort(-probs) are the tokens from the likeliest on. A token stays if what is
#              likelier than it, all together, has not reached p yet. result[order[...]] = ...
#              puts numbers back to their places.
