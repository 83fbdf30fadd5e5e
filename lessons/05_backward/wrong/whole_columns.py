# caught by: check_equal_logits
# Indexing with a list picks one entry per row.
import numpy as np


def cross_entropy_backward(logits, targets):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[:, targets] -= 1
    return p / len(targets)
