# caught by: check_two_ways_on_from_one_cache
# The cache is this function's own, so it can keep one array and write into it.
import numpy as np

KEPT = {}


def cached_step(x, cache, wpe, w_q, w_k, w_v):
    past, (n, d) = len(cache[0]), x.shape
    if past == 0:
        KEPT["kv"] = np.zeros((2, len(wpe), d))
    kv = KEPT["kv"]
    past = 0 if past == 0 else KEPT["past"]
    KEPT["past"] = past + n
    x = x + wpe[past : past + n]
    kv[:, past : past + n] = x @ w_k, x @ w_v
    k, v = kv[:, : past + n]
    scores = np.where(np.tri(n, past + n, past), x @ w_q @ k.T / np.sqrt(d), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v, (k.copy(), v.copy())
