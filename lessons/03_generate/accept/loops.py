# One token after another; the last of equal tokens stays; a mask of whole numbers from np.tri.
import numpy as np


def causal_mask(n_q, n_kv):
    return np.tri(n_q, n_kv, k=n_kv - n_q, dtype=int)


def cached_step(x, cache, wpe, w_q, w_k, w_v):
    k, v = cache
    out = np.empty_like(x)
    for i, row in enumerate(x):
        row = row + wpe[len(k)]
        k, v = np.vstack([k, row @ w_k]), np.vstack([v, row @ w_v])
        scores = k @ (row @ w_q) / x.shape[1] ** 0.5
        weights = np.exp(scores - scores.max())
        out[i] = weights @ v / weights.sum()
    return [out, [k, v]]


def top_p(probs, p):
    result, total = np.zeros(len(probs)), 0.0
    for i in np.argsort(probs)[::-1]:
        if total < p:
            result[i] = probs[i]
            total += probs[i]
    return result / total
