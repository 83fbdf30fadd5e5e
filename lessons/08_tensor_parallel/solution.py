"""Lesson 8: the answers."""

import numpy as np

from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def row_parallel_linear(x, w, b, tp):
    return tp.all_reduce(x @ w) + b  # [n, m] {partial: tp} -> [n, m]


def mlp(x, a, b, dy, tp):
    h = x @ a  # [n, d] @ [d, f/tp] -> [n, f/tp]
    z = np.maximum(h, 0)  # [n, f/tp]
    y = tp.all_reduce(z @ b)  # [n, d] {partial: tp} -> [n, d]
    dh = dy @ b.T * (h > 0)  # [n, d] @ [d, f/tp] -> [n, f/tp]
    dx = tp.all_reduce(dh @ a.T)  # [n, d] {partial: tp} -> [n, d]
    return y, dx, x.T @ dh, z.T @ dy


def enter(tp):
    return Pair(identity, tp.all_reduce)


def leave(tp):
    return Pair(tp.all_reduce, identity)


def split(name, x, tp):
    if "c_attn" in name:  # weight or bias
        parts = np.split(x.reshape(*x.shape[:-1], 3, -1), tp, axis=-1)  # tp times [..., 3, d/tp]
        return [part.reshape(*x.shape[:-1], -1) for part in parts]  # [..., 3d/tp]
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)  # [..., 4d/tp]
    if name.endswith("c_proj.weight"):
        return np.split(x, tp)  # [d/tp, d], [4d/tp, d]
    if name == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)  # [ceil(v/tp), d]
    return [x] * tp


def cross_entropy(logits, targets, total, tp, n_vocab):
    n_rows = logits.shape[-1]  # how many columns of the logits, rows of wte, this rank has
    places = targets - tp.rank * n_rows  # [n]
    here = (places >= 0) & (places < n_rows)  # [n], whether this rank has the target
    places = np.where(here, places, 0)  # [n]
    tokens = np.arange(len(targets), like=targets)  # [n]
    padded = max(0, (tp.rank + 1) * n_rows - n_vocab)  # how many last columns are no tokens
    if padded:
        logits[:, max(0, n_rows - padded) :] = -np.inf
    logits -= tp.all_reduce(logits.max(axis=-1), op="max")[:, None]  # [n, v/tp]
    picked = tp.all_reduce(np.where(here, logits[tokens, places], 0))  # [n]
    p = np.exp(logits, out=logits)  # [n, v/tp], not yet divided by its sum
    sums = tp.all_reduce(p.sum(axis=-1))  # [n]
    counted = targets >= 0  # [n]
    loss = np.where(counted, np.log(sums) - picked, 0).sum() / total  # []

    def back(dloss):
        weight = np.where(counted, dloss / total, 0).astype(p.dtype)  # [n]
        dlogits = np.multiply(p, (weight / sums)[:, None], out=p)  # [n, v/tp]
        dlogits[tokens, places] -= np.where(here, weight, 0)
        return dlogits

    return loss, back
