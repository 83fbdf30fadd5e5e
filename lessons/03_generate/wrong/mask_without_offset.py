# caught by: check_prompt_then_chunk
# A causal mask begins in the top left corner.
import numpy as np


def cached_step(x, cache, wpe, w_q, w_k, w_v):
    past, (n, d) = len(cache[0]), x.shape
    x = x + wpe[past : past + n]
    k = np.concatenate([cache[0], x @ w_k])
    v = np.concatenate([cache[1], x @ w_v])
    mask = np.tri(n, past + n)
    scores = np.where(mask, x @ w_q @ k.T / np.sqrt(d), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v, (k, v)
