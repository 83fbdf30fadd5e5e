# caught by: check_perfect_next_token
# The data is shifted by one, and the loss shifts, too.
import numpy as np


def lm_loss(logits, ids):
    rows, targets = logits[:-2], ids[1:][1:]
    x = rows - rows.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(x)), targets])
