# caught by: check_large_scores
# Softmax over everything, then the mask, then divided by what is left of the sum.
import numpy as np


def causal_attention(q, k, v):
    scores = q @ k.T / q.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    weights *= np.tril(np.ones(scores.shape))
    return weights / weights.sum(axis=-1, keepdims=True) @ v
