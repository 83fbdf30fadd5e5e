# From the sorted end: how many are needed is the place of p in the running total.
import numpy as np


def causal_mask(n_q, n_kv):
    return np.tril(np.ones((n_q, n_kv)), n_kv - n_q)


def top_p(probs, p):
    order = np.argsort(probs)[::-1]
    n = np.searchsorted(np.cumsum(probs[order]), p) + 1
    result = probs.copy()
    result[order[n:]] = 0
    return result / result.sum()
