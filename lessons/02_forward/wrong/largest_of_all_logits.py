# caught by: check_large_logits
# Take the largest logit off, and exp cannot overflow.
import numpy as np


def lm_loss(logits, ids):
    rows = logits[:-1] - logits.max()
    return np.mean(np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(rows)), ids[1:]])
