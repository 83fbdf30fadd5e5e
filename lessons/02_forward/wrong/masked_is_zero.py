# caught by: check_equal_scores_give_means
# A score that must not count is 0.
import numpy as np


def causal_attention(q, k, v):
    scores = np.tril(q @ k.T / np.sqrt(q.shape[1]))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v
