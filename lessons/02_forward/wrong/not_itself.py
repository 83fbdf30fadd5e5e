# caught by: check_equal_scores_give_means
# The past of a token is what came before it, without the token.
import numpy as np


def causal_attention(q, k, v):
    scores = np.where(np.tri(len(q), k=-1), q @ k.T / np.sqrt(q.shape[1]), -1e9)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v
