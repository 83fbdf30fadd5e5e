# caught by: check_equal_scores_give_means
# A mask takes the weights away that must not be there.
import numpy as np


def causal_attention(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.tril(weights) @ v
