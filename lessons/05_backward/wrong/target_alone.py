# caught by: check_rows_of_unequal_logits
# The loss reads only the target's probability, so only the target's logit has a gradient.
import numpy as np


def cross_entropy_backward(logits, targets):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows, d = np.arange(len(targets)), np.zeros_like(logits)
    d[rows, targets] = (p[rows, targets] - 1) / len(targets)
    return d
