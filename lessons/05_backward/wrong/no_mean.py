# caught by: check_equal_logits
# The gradient of a loss is p minus one-hot.
import numpy as np


def cross_entropy_backward(logits, targets):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(targets)), targets] -= 1
    return p
