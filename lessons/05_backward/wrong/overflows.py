# caught by: check_large_logits
# Softmax is exp over the sum of exp.
import numpy as np


def cross_entropy_backward(logits, targets):
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    p[np.arange(len(targets)), targets] -= 1
    return p / len(targets)
