"""Lesson 3: the answers."""

import numpy as np


def causal_mask(n_q, n_kv):
    return np.arange(n_kv) <= np.arange(n_kv - n_q, n_kv)[:, None]  # [n_kv], [n_q, 1]


def cached_step(x, cache, wpe, w_q, w_k, w_v):
    past, (n, d) = len(cache[0]), x.shape
    x = x + wpe[past : past + n]  # [n, d]
    k = np.concatenate([cache[0], x @ w_k])  # [past + n, d]
    v = np.concatenate([cache[1], x @ w_v])  # [past + n, d]
    scores = (x @ w_q) @ k.T / np.sqrt(d)  # [n, past + n]
    scores = np.where(causal_mask(n, past + n), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))  # [n, past + n]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ v, (k, v)  # [n, past + n] @ [past + n, d] -> [n, d]


def top_p(probs, p):
    order = np.argsort(-probs)  # [v], the likeliest first
    likelier = np.cumsum(probs[order]) - probs[order]  # [v], together
    kept = order[likelier < p]
    result = np.zeros_like(probs)  # [v]
    result[kept] = probs[kept] / probs[kept].sum()
    return result
