# Row by row, einsum, and a large negative number in place of -inf.
import numpy as np


def merge_heads(y):
    return np.stack([y[:, t].ravel() for t in range(y.shape[1])])


def causal_attention(q, k, v):
    mask = np.triu(np.full((len(q), len(q)), -1e9), 1)
    scores = np.einsum("ie,je->ij", q * q.shape[1] ** -0.5, k) + mask
    out = []
    for row in scores:
        w = np.exp(row - max(row))
        out.append(w @ v / sum(w))
    return np.array(out)


def lm_loss(logits, ids):
    total = 0.0
    for row, i in zip(logits, ids[1:]):
        shifted = row - row.max()
        total -= shifted[i] - np.log(np.sum(np.exp(shifted)))
    return total / (len(ids) - 1)
