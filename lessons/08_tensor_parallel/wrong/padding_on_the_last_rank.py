# caught by: check_columns_that_are_no_tokens
# Padding is at the end, so the last rank has it.
import numpy as np


def cross_entropy(logits, targets, total, tp, n_vocab):
    n_rows = logits.shape[-1]
    places = targets - tp.rank * n_rows
    here = (places >= 0) & (places < n_rows)
    places = np.where(here, places, 0)
    tokens = np.arange(len(targets), like=targets)
    padded = n_rows * tp.size - n_vocab
    if padded and tp.rank == tp.size - 1:
        logits[:, max(0, n_rows - padded) :] = -np.inf
    logits = logits - tp.all_reduce(logits.max(axis=-1), op="max")[:, None]
    picked = tp.all_reduce(np.where(here, logits[tokens, places], 0))
    p = np.exp(logits)
    sums = tp.all_reduce(p.sum(axis=-1))
    counted = targets >= 0
    loss = np.where(counted, np.log(sums) - picked, 0).sum() / total

    def back(dloss):
        weight = np.where(counted, dloss / total, 0).astype(p.dtype)
        dlogits = p * (weight / sums)[:, None]
        dlogits[tokens, places] -= np.where(here, weight, 0)
        return dlogits

    return loss, back
