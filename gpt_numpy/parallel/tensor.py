"""Tensor parallelism: every rank of the group `tp` holds a part of each matrix.

A block's first matrices are split by columns, so that a rank has whole heads and whole hidden
units; its last ones by rows, so that what a rank computes from them is a partial sum. Two
communications a block are left, f and g of Megatron-LM (arXiv 1909.08053):

    enter  f   forward: nothing, x is whole on every rank
               backward: all-reduce, its gradient is a partial sum
    leave  g   forward: all-reduce, y is a partial sum
               backward: nothing

The embedding is split by vocabulary, and so are the logits, which no rank ever gathers.
"""

import numpy as np

from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair

AXIS = {  # of which arrays tp holds parts, along which axis; the others are whole on every rank
    "attn.c_attn.weight": 1,  # [d, 3d], by heads
    "attn.c_attn.bias": 0,
    "attn.c_proj.weight": 0,  # [d, d], by heads
    "mlp.c_fc.weight": 1,  # [d, 4d], by hidden units
    "mlp.c_fc.bias": 0,
    "mlp.c_proj.weight": 0,  # [4d, d], by hidden units
    "wte.weight": 0,  # [v, d], by vocabulary
}


def split_axis(name):
    """The axis along which the array of this published name is split; None if it is not.

    >>> split_axis("h.3.attn.c_proj.weight"), split_axis("h.3.attn.c_proj.bias")
    (0, None)
    """
    return AXIS.get(name.split(".", 2)[-1] if name.startswith("h.") else name)


def check(config, tp):
    """Refuse what does not divide, before anything is allocated."""
    if config.n_head % tp:
        sizes = ", ".join(str(i) for i in range(1, config.n_head + 1) if config.n_head % i == 0)
        raise ValueError(f"tp = {tp} does not divide the {config.n_head} heads: tp can be {sizes}")


def split(name, x, tp):
    """An array cut into the parts of tp ranks.

    c_attn is [q | k | v]: each of the three is cut, by heads. The vocabulary is padded with rows
    of zeros to a multiple of tp.

    >>> [part.tolist() for part in split("h.0.attn.c_attn.bias", np.arange(12), 2)]  # d = 4
    [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    """
    axis = split_axis(name)
    if axis is None:
        return [x] * tp
    if "c_attn" in name:
        parts = np.split(x.reshape(*x.shape[:-1], 3, -1), tp, axis=-1)  # [..., 3, d/tp]
        return [part.reshape(*x.shape[:-1], -1) for part in parts]  # [..., 3d/tp]
    if name == "wte.weight":
        x = np.pad(x, [(0, -len(x) % tp), (0, 0)])  # [v, d] -> [tp * ceil(v/tp), d]
    return np.split(x, tp, axis)


def join(name, parts, n_vocab):
    """The whole array from its parts: the inverse of `split`."""
    axis = split_axis(name)
    if axis is None:
        return parts[0]
    if "c_attn" in name:
        parts = [part.reshape(*part.shape[:-1], 3, -1) for part in parts]  # [..., 3, d/tp]
        whole = np.concatenate(parts, axis=-1)  # [..., 3, d]
        return whole.reshape(*whole.shape[:-2], -1)  # [..., 3d]
    whole = np.concatenate(parts, axis)
    return whole[:n_vocab] if name == "wte.weight" else whole


def enter(tp):
    return Pair(identity, tp.all_reduce)


def leave(tp):
    return Pair(tp.all_reduce, identity)


def local_ids(ids, n_rows, tp):
    """Where ids [...] are among this rank's n_rows of the vocabulary -> row or 0, whether here."""
    rows = ids - tp.rank * n_rows  # [...]
    here = (rows >= 0) & (rows < n_rows)  # [...]
    return np.where(here, rows, 0), here


def positions(b, s, like):  # -> [n], of the tokens of b sequences
    return np.arange(b * s, like=like) % s


def embedding(tokens, p, tp, leave, positions=positions):
    """Each rank looks up the tokens whose rows it has: [b, s] -> [n, d].

    The others give zeros, and the sum is whole. Sequence parallel: it is [n/tp, d].
    """
    wte, wpe = p["wte"], p["wpe"]  # [v/tp, d], [n_ctx, d]
    places = positions(*tokens.shape, like=tokens)  # [n]; [n/tp], those of this rank
    rows, here = local_ids(tokens.reshape(-1), len(wte), tp)  # [n], [n]
    x = wte[rows] * here[:, None].astype(wte.dtype)  # [n, d] {partial: tp}
    x = leave.forward(x)  # [n, d] or [n/tp, d]

    def back(dx):
        dwte, dwpe = np.zeros_like(p["wte"]), np.zeros_like(p["wpe"])  # [v/tp, d], [n_ctx, d]
        np.add.at(dwpe, places, dx)
        np.add.at(dwte, rows, leave.backward(dx) * here[:, None].astype(dx.dtype))
        return None, {"wte": dwte, "wpe": dwpe}

    return x + wpe[places], back


def cross_entropy(logits, targets, total, tp, n_vocab):  # [n, v/tp], [n] -> []
    """layers.cross_entropy of logits split by vocabulary, in the logits' own memory.

    Three numbers per token are reduced, never the logits.
    """
    n_rows = logits.shape[-1]
    rows, here = local_ids(targets, n_rows, tp)  # [n], [n]
    tokens = np.arange(len(targets), like=targets)  # [n]
    padded = max(0, (tp.rank + 1) * n_rows - n_vocab)  # how many last columns are no tokens
    if padded:
        logits[:, max(0, n_rows - padded) :] = -np.inf
    logits -= tp.all_reduce(logits.max(axis=-1), op="max")[:, None]  # [n, v/tp]
    picked = tp.all_reduce(np.where(here, logits[tokens, rows], 0))  # [n]
    p = np.exp(logits, out=logits)  # [n, v/tp], not yet divided by its sum
    sums = tp.all_reduce(p.sum(axis=-1))  # [n]
    counted = targets >= 0  # [n]
    loss = np.where(counted, np.log(sums) - picked, 0).sum() / total  # []

    def back(dloss):
        weight = np.where(counted, dloss / total, 0).astype(p.dtype)  # [n]
        dlogits = np.multiply(p, (weight / sums)[:, None], out=p)  # [n, v/tp]
        dlogits[tokens, rows] -= np.where(here, weight, 0)
        return dlogits

    return loss, back
