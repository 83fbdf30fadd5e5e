# caught by: check_copying_is_punished
# Logits and ids have the same length, so they belong together.
import numpy as np


def lm_loss(logits, ids):
    x = logits - logits.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(ids)), ids])
