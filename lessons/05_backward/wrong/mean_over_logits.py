# caught by: check_one_row
# The mean is over all logits.
import numpy as np


def cross_entropy_backward(logits, targets):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(targets)), targets] -= 1
    return p / p.size
