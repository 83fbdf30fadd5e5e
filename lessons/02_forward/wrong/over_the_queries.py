# caught by: check_weights_sum_to_one
# Softmax goes over the first axis.
import numpy as np


def causal_attention(q, k, v):
    scores = np.where(np.tri(len(q)), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=0))
    return weights / weights.sum(axis=0) @ v
