# caught by: check_last_row_predicts_nothing
# np.roll makes the targets, one for each row.
import numpy as np


def lm_loss(logits, ids):
    x = logits - logits.max(axis=1, keepdims=True)
    targets = np.roll(ids, -1)
    return np.mean(np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(ids)), targets])
