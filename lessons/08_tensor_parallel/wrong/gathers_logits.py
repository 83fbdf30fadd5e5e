# caught by: check_logits_are_not_gathered
# A softmax needs the whole row: gather it, and take one's own columns of the gradient.
import numpy as np


def cross_entropy(logits, targets, total, tp, n_vocab):
    n_rows = logits.shape[-1]
    whole = tp.all_gather(logits, axis=1)[:, :n_vocab]
    tokens = np.arange(len(targets), like=targets)
    counted = targets >= 0
    safe = np.where(counted, targets, 0)
    whole = whole - whole.max(axis=-1)[:, None]
    p = np.exp(whole)
    p = p / p.sum(axis=-1)[:, None]
    loss = np.where(counted, -np.log(p[tokens, safe]), 0).sum() / total

    def back(dloss):
        weight = np.where(counted, dloss / total, 0).astype(p.dtype)
        grad = p * weight[:, None]
        grad[tokens, safe] -= weight
        mine = np.zeros_like(logits)
        part = grad[:, tp.rank * n_rows : (tp.rank + 1) * n_rows]
        mine[:, : part.shape[1]] = part
        return mine

    return loss, back
