"""The layers of gpt2.py again, for training: each returns its output and its backward pass.

    y, back = layer(x, p)    # p: the layer's parameters, a dict of arrays
    dx, dp = back(dy)        # dp: their gradients, under the same names

A layer without parameters returns dx alone. There is no tape: what `back` needs its closure
holds, and dropping `back` frees it. Parameters are looked up in `p` when they are used, forward
and backward, so that their owner may drop them in between (ZeRO-3 does).

Shapes: n = b * s tokens, of b sequences of s tokens each, a row per token; d = n_embd,
h = n_head, e = d / h, v = n_vocab. A tensor-parallel rank has 1/tp of the heads, hidden units and
vocabulary. `enter` and `leave` are the conjugate pairs f and g of arXiv 1909.08053, section 3; on
one device they do nothing. Sequence parallelism gives each rank n/tp of the rows outside of them.
"""

from collections.abc import Callable
from functools import reduce, wraps
from operator import add
from typing import NamedTuple

import numpy as np

from gpt_numpy.gpt2 import attention_mask, identity, softmax


class Pair(NamedTuple):
    """A communication: a function applied going forward, and its conjugate going backward."""

    forward: Callable = identity
    backward: Callable = identity


IDENTITY = Pair()


def kernel(layer):
    """Let a device count a layer, and its `back`, as one fused kernel each.

    NumPy's arrays are on no such device.
    """

    @wraps(layer)
    def run(x, *args, **options):
        device = getattr(x, "device", None)
        if not hasattr(device, "kernel"):
            return layer(x, *args, **options)
        with device.kernel(layer.__name__):
            y, back = layer(x, *args, **options)

        def fused_back(dy):
            with device.kernel(f"{layer.__name__} backward"):
                return back(dy)

        return y, fused_back

    return run


def recompute(layer):
    """The same layer, holding its inputs alone: it runs again when the gradient arrives."""

    @wraps(layer)
    def run(*args, **options):
        y, _ = layer(*args, **options)
        return y, lambda dy: layer(*args, **options)[1](dy)

    return run


def linear(x, *params, enter=IDENTITY):
    """Linear layers that read the same x: [n, d], {w: [d, k/tp], b: [k/tp]} -> [n, k/tp], of each.

    Tensor parallel: the columns of w, and so of y, are split.
    """
    whole = enter.forward(x)  # [n, d]; [n/tp, d] -> [n, d] if sequence parallel
    ys = [whole @ p["w"] + p["b"] for p in params]  # [n, d] @ [d, k/tp] -> [n, k/tp]

    def back(*dys):
        dx = reduce(add, [dy @ p["w"].T for dy, p in zip(dys, params)])  # [n, d] {partial: tp}
        dx = enter.backward(dx)  # [n, d]
        whole = enter.forward(x)  # [n, d]; sequence parallel: again, only [n/tp, d] was held
        return dx, [{"w": whole.T @ dy, "b": dy.sum(axis=0)} for dy in dys]

    return ys, back


def linear_sum(xs, *params, leave=IDENTITY):
    """The sum of linear layers: [n, k/tp] and {w: [k/tp, d], b: [d]}, of each -> [n, d].

    Tensor parallel: the rows of w are split, so each rank has a partial sum.
    """
    y = reduce(add, [x @ p["w"] for x, p in zip(xs, params)])  # [n, d] {partial: tp}
    y = reduce(add, [p["b"] for p in params], leave.forward(y))  # [n, d], each bias added once

    def back(dy):
        whole = leave.backward(dy)  # [n, d]
        dxs = [whole @ p["w"].T for p in params]  # [n, d] @ [d, k/tp] -> [n, k/tp]
        # sequence parallel: dy has a part of the tokens, so b's gradient is still to be summed
        return dxs, [{"w": x.T @ whole, "b": dy.sum(axis=0)} for x in xs]

    return y, back


@kernel
def gelu(x):  # [n, 4d/tp] -> [n, 4d/tp]
    def tanh(x):
        return np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))

    def back(dy):
        t = tanh(x)  # [n, 4d/tp], computed again: cheaper than holding it
        inner = 0.3989422804014327 + 0.053516112204450184 * x * x  # [n, 4d/tp], by the chain rule
        slope = 0.5 * (1 + t) + x * (1 - t * t) * inner  # [n, 4d/tp]
        return dy * slope

    return 0.5 * x * (1 + tanh(x)), back


@kernel
def layer_norm(x, p):  # [n, d], {g: [d], b: [d]} -> [n, d]
    x = x - x.mean(axis=-1, keepdims=True)  # [n, d] - [n, 1]
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)  # [n, 1]
    x *= scale  # [n, d], of mean 0 and variance 1

    def back(dy):
        grads = {"g": (dy * x).sum(axis=0), "b": dy.sum(axis=0)}  # [n, d] -> [d]
        dx = dy * p["g"]  # [n, d]
        along = (dx * x).mean(axis=-1, keepdims=True)  # [n, 1]
        # the norm took the mean from x, and its length: neither can be felt
        dx -= dx.mean(axis=-1, keepdims=True)  # [n, d] - [n, 1]
        dx -= x * along  # [n, d] * [n, 1]
        dx *= scale  # [n, d] * [n, 1]
        return dx, grads

    return x * p["g"] + p["b"], back


def heads(x, s, n_head):  # [n, 3d/tp] -> three of [b, h/tp, s, e], views: queries, keys, values
    return x.reshape(-1, s, 3, n_head, x.shape[-1] // 3 // n_head).transpose(2, 0, 3, 1, 4)


def attend_backward(dy, weights, q, k, v):  # [b, h/tp, r, e] of r queries -> dq, dk, dv
    dscores = dy @ v.swapaxes(-1, -2)  # [b, h/tp, r, m], until here of the weights
    dscores -= (dscores * weights).sum(axis=-1, keepdims=True)  # softmax backward, in place
    dscores *= weights
    scale = q.shape[-1] ** -0.5
    return (
        dscores @ (k * scale),  # [b, h/tp, r, m] @ [b, h/tp, m, e] -> [b, h/tp, r, e]
        dscores.swapaxes(-1, -2) @ (q * scale),  # [b, h/tp, m, r] @ [b, h/tp, r, e]
        weights.swapaxes(-1, -2) @ dy,  # [b, h/tp, m, r] @ [b, h/tp, r, e]
    )


@kernel
def attend(qkv, mask, n_head):  # [n, 3d/tp], [s, s] -> [n, d/tp]
    s = len(mask)
    q, k, v = heads(qkv, s, n_head)  # three times [b, h/tp, s, e]
    weights = softmax((q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2) + mask)  # [b, h/tp, s, s]

    def back(dy):
        dqkv = np.empty_like(qkv)  # [n, 3d/tp]
        dy = dy.reshape(-1, s, *q.shape[1::2]).swapaxes(1, 2)  # [n, d/tp] -> [b, h/tp, s, e]
        for part, grad in zip(heads(dqkv, s, n_head), attend_backward(dy, weights, q, k, v)):
            part[...] = grad
        return dqkv

    return (weights @ v).swapaxes(1, 2).reshape(len(qkv), -1), back  # [b, h/tp, s, e] -> [n, d/tp]


@kernel
def flash_attend(qkv, mask, n_head, window=None, tile=128):  # [n, 3d/tp], [s, s] -> [n, d/tp]
    """`attend` for causal masks, a tile of queries at a time.

    [s, s] is never held, and hidden keys are skipped: what FlashAttention (arXiv 2205.14135) does
    in a GPU's cache. `back` computes the weights again, tile by tile.
    """
    s = len(mask)
    q, k, v = heads(qkv, s, n_head)  # three times [b, h/tp, s, e]

    def tiles():  # the queries of each tile, the keys they see, their weights [b, h/tp, r, m]
        for start in range(0, s, tile):
            r = slice(start, min(start + tile, s))
            m = slice(0 if window is None else max(0, start - window + 1), r.stop)
            scores = (q[:, :, r] * q.shape[-1] ** -0.5) @ k[:, :, m].swapaxes(-1, -2)
            yield r, m, softmax(scores + mask[r, m])

    def back(dy):
        dqkv = np.zeros_like(qkv)  # [n, 3d/tp]
        dq, dk, dv = heads(dqkv, s, n_head)
        dy = dy.reshape(-1, s, *q.shape[1::2]).swapaxes(1, 2)  # [n, d/tp] -> [b, h/tp, s, e]
        for r, m, weights in tiles():
            grads = attend_backward(dy[:, :, r], weights, q[:, :, r], k[:, :, m], v[:, :, m])
            for part, where, grad in zip((dq, dk, dv), (r, m, m), grads):
                part[:, :, where] += grad
        return dqkv

    y = np.empty((len(qkv), qkv.shape[-1] // 3), qkv.dtype, like=qkv)  # [n, d/tp]
    by_head = y.reshape(-1, s, *q.shape[1::2])  # [b, s, h/tp, e], a view
    for r, m, weights in tiles():
        by_head[:, r] = (weights @ v[:, :, m]).swapaxes(1, 2)  # [b, r, h/tp, e]
    return y, back


def embedding(tokens, p):  # [b, s] -> [n, d]
    n = tokens.size
    s = tokens.shape[-1]
    x = p["wte"][tokens] + p["wpe"][:s]  # [b, s, d] + [s, d]

    def back(dx):
        dwte, dwpe = np.zeros_like(p["wte"]), np.zeros_like(p["wpe"])  # [v, d], [n_ctx, d]
        np.add.at(dwte, tokens.reshape(n), dx)  # a token that occurs twice adds twice
        dwpe[:s] = dx.reshape(-1, s, dx.shape[-1]).sum(axis=0)
        return None, {"wte": dwte, "wpe": dwpe}

    return x.reshape(n, -1), back


@kernel
def cross_entropy(logits, targets, total):  # [n, v], [n] -> []; in logits' own memory
    """Sum of -log p(target) over the tokens whose target is not negative, divided by `total`.

    `total` is how many such tokens the whole global batch has, on every rank and in every
    micro-batch. Losses and gradients of parts of a batch then add up to those of the batch,
    however unevenly it is cut.
    """
    rows = np.arange(len(targets), like=targets)  # [n]
    counted = targets >= 0  # [n]
    targets = np.where(counted, targets, 0)  # [n], any id will do where there is no loss
    logits -= logits.max(axis=-1, keepdims=True)  # [n, v] - [n, 1]
    picked = logits[rows, targets]  # [n]
    p = np.exp(logits, out=logits)  # [n, v], not yet divided by its sum
    sums = p.sum(axis=-1)  # [n]
    loss = np.where(counted, np.log(sums) - picked, 0).sum() / total  # []

    def back(dloss):
        weight = np.where(counted, dloss / total, 0).astype(p.dtype)  # [n]
        dlogits = np.multiply(p, (weight / sums)[:, None], out=p)  # [n, v]
        dlogits[rows, targets] -= weight
        return dlogits

    return loss, back


def head(x, p, targets, total, enter=IDENTITY, loss=cross_entropy):  # [n, d], [b, s] -> []
    """Final norm, logits by the tied embedding, loss. Tensor parallel: the vocabulary is split."""
    y, back_norm = layer_norm(x, p["ln_f"])  # [n, d]
    logits = enter.forward(y) @ p["wte"].T  # [n, d] @ [d, v/tp] -> [n, v/tp]
    nll, back_loss = loss(logits, targets.reshape(-1), total)  # []

    def back(dloss):
        dlogits = back_loss(dloss)  # [n, v/tp]
        dy = enter.backward(dlogits @ p["wte"])  # [n, d]
        dwte = dlogits.T @ enter.forward(y)  # [v/tp, n] @ [n, d] -> [v/tp, d]
        dx, dln_f = back_norm(dy)
        return dx, {"wte": dwte, "ln_f": dln_f}

    return nll, back


FIRST = {"attn": "c_attn", "mlp": "c_fc"}  # the linear layer that a block's branch begins with


def sublayer(x, p, norm, branches, enter=IDENTITY, leave=IDENTITY):  # [n, d] -> [n, d]
    """x plus what the branches make of its norm.

    A branch is linear, inner layer, linear: {name: inner layer}.
    """
    first = [p[name][FIRST[name]] for name in branches]
    last = [p[name]["c_proj"] for name in branches]
    y, back_norm = layer_norm(x, p[norm])  # [n, d]
    ys, back_in = linear(y, *first, enter=enter)  # [n, 3d/tp] or [n, 4d/tp]
    inners = zip(branches.values(), ys)
    zs, backs = zip(*[inner(y) for inner, y in inners])  # [n, d/tp] or [n, 4d/tp]
    out, back_out = linear_sum(zs, *last, leave=leave)  # [n, d]

    def back(dx):
        dzs, out_grads = back_out(dx)
        dy, in_grads = back_in(*[back(dz) for back, dz in zip(backs, dzs)])
        dy, norm_grads = back_norm(dy)
        grads = {norm: norm_grads}
        for name, d_first, d_last in zip(branches, in_grads, out_grads):
            grads[name] = {FIRST[name]: d_first, "c_proj": d_last}
        return dx + dy, grads

    return x + out, back


def block(x, p, mask, n_head, enter=IDENTITY, leave=IDENTITY, attend=attend):
    """Attention, then MLP, each added to x: [n, d], {}, [s, s] -> [n, d].

    Without ln_2, both at once: MegaScale's parallel block.
    """
    attention = {"attn": lambda qkv: attend(qkv, mask, n_head)}
    mlp = {"mlp": gelu}
    parts = {"ln_1": attention, "ln_2": mlp} if "ln_2" in p else {"ln_1": attention | mlp}
    backs = []
    for norm, branches in parts.items():
        x, back = sublayer(x, p, norm, branches, enter, leave)  # [n, d]
        backs.append(back)

    def back(dx):
        grads = {}
        for part in reversed(backs):
            dx, part_grads = part(dx)
            grads |= part_grads
        return dx, grads

    return x, back


class Layers(NamedTuple):
    """The layers a model is run with: those of one device. Parallel strategies replace some."""

    embedding: Callable = embedding
    block: Callable = block
    head: Callable = head


def gpt2(x, params, targets, total, n_head, layers=Layers(), **mask):
    """The loss, or a pipeline stage of it: what of the embedding, blocks and head `params` holds.

    x        token ids [b, s], or [n, d] from the stage before
    targets  ids [b, s], negative where there is no loss
    total    see cross_entropy
    mask     `prefix` and `window`, see gpt2.attention_mask

    Returns the loss [], or [n, d] for the next stage, and `back`, to be called once: it frees what
    it has used.
    """
    backs = []
    if "wpe" in params:
        p = {"wte": params["wte"], "wpe": params["wpe"]}
        x, back = layers.embedding(x, p)  # [b, s] -> [n, d]
        backs.append(("embedding", back))
    s = targets.shape[-1]
    mask = attention_mask(s, s, x, **mask)  # [s, s]
    for p in params["blocks"]:
        x, back = layers.block(x, p, mask, n_head)  # [n, d] -> [n, d]
        backs.append(("block", back))
    if "ln_f" in params:
        p = {"wte": params["wte"], "ln_f": params["ln_f"]}
        x, back = layers.head(x, p, targets, total)  # [n, d] -> []
        backs.append(("head", back))

    def back(dx=1.0):
        grads = {"blocks": []}
        while backs:
            kind, last = backs.pop()
            dx, part = last(dx)
            if kind == "block":
                grads["blocks"].insert(0, part)
            else:  # the tied wte gets a gradient from both ends
                part = {k: part[k] + grads[k] if k in grads else part[k] for k in part}
                grads |= part
        return dx, grads

    return x, back
