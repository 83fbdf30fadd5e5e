# caught by: check_large_scores
# A softmax is exp, divided by its sum.
import numpy as np


def causal_attention(q, k, v):
    weights = np.tril(np.exp(q @ k.T / np.sqrt(q.shape[1])))
    return weights / weights.sum(axis=1, keepdims=True) @ v
