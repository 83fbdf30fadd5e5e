# caught by: check_large_scores
# The largest score goes off, then exp; what is masked is multiplied by 0.
import numpy as np


def causal_attention(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True)) * np.tri(len(q))
    return weights / weights.sum(axis=1, keepdims=True) @ v
