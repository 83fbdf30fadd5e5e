# caught by: check_more_tokens_than_ids_and_fewer
# NumPy normalises along the first axis.
import numpy as np


def cross_entropy_backward(logits, targets):
    p = np.exp(logits - logits.max(axis=0))
    p /= p.sum(axis=0)
    p[np.arange(len(targets)), targets] -= 1
    return p / len(targets)
