# caught by: check_uniform
# The mean is over the n tokens of the text.
import numpy as np


def lm_loss(logits, ids):
    rows = logits[:-1] - logits[:-1].max(axis=1, keepdims=True)
    right = rows[np.arange(len(rows)), ids[1:]]
    return np.sum(np.log(np.exp(rows).sum(axis=1)) - right) / len(ids)
