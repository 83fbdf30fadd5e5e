# caught by: check_equal_logits
# The logits are not needed any more, so p can have their memory.
import numpy as np


def cross_entropy_backward(logits, targets):
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits[np.arange(len(targets)), targets] -= 1
    return logits / len(targets)
