# caught by: check_one_by_one
# Positions count the tokens that were passed in.
import numpy as np


def cached_step(x, cache, wpe, w_q, w_k, w_v):
    past, (n, d) = len(cache[0]), x.shape
    x = x + wpe[:n]
    k = np.concatenate([cache[0], x @ w_k])
    v = np.concatenate([cache[1], x @ w_v])
    mask = np.tri(n, past + n, past)
    scores = np.where(mask, x @ w_q @ k.T / np.sqrt(d), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v, (k, v)
