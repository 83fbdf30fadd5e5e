"""Optimizers: AdamW and LAMB, and clipping by the global norm.

They work on flat dicts of arrays, {"h.0.attn.c_attn.weight": array, ...}, as `checkpoint.flatten`
makes them. Weights are changed in place. `m` and `v` are the running means of the gradient and of
its square.
"""

import numpy as np

PIECE = 1 << 16  # elements: what the loop over an array touches at a time stays in the cache


def pieces(*arrays):
    """The same pieces of arrays of one shape, as flat views.

    Device arrays, and arrays with gaps, are one piece.
    """
    if not all(isinstance(a, np.ndarray) and a.flags.c_contiguous for a in arrays):
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for i in range(0, arrays[0].size, PIECE):
        yield [a[i : i + PIECE] for a in flat]


def decayed(params):
    """The names of the weights that decay: matrices, not biases and the gains of layer norms."""
    return {name for name, p in params.items() if p.ndim >= 2}


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).

    In the order of the paper's published code: first the weights decay by lr * weight_decay, then
    they move by lr * m_hat / (sqrt(v_hat) + eps), where m_hat = m / (1 - beta1^t) and
    v_hat = v / (1 - beta2^t).

    >>> theta, grads = {"w": np.ones((1, 1))}, {"w": np.full((1, 1), 0.1)}
    >>> AdamW(theta, betas=(0.9, 0.999), weight_decay=0.1).step(theta, grads, lr=0.1)
    >>> round(float(theta["w"][0, 0]), 9)
    0.89000001
    """

    def __init__(self, params, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, decay=None):
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        # names; whoever passes flat shards gives them, for a shard has lost its dimensions
        self.decay = decayed(params) if decay is None else decay
        self.m = {name: np.zeros_like(p) for name, p in params.items()}
        self.v = {name: np.zeros_like(p) for name, p in params.items()}
        self.t = 0

    def step(self, params, grads, lr):
        """Move every weight in place by its gradient."""
        self.t += 1
        for name, p in params.items():
            decay = self.weight_decay if name in self.decay else 0.0
            for w, g, m, v in pieces(p, grads[name], self.m[name], self.v[name]):
                w *= 1 - lr * decay
                w -= lr * self.direction(g, m, v)

    def direction(self, g, m, v):
        """m_hat / (sqrt(v_hat) + eps), after the gradient has gone into m and v, in place."""
        beta1, beta2 = self.betas
        m *= beta1
        m += (1 - beta1) * g
        v *= beta2
        v += (1 - beta2) * (g * g)
        u = np.sqrt(v * (1 / (1 - beta2**self.t)))
        u += self.eps
        return np.divide(m * (1 / (1 - beta1**self.t)), u, out=u)


class Lamb(AdamW):
    """LAMB (You et al., arXiv 1904.00962, algorithm 2): each array moves by lr times its own norm.

    The step u = m_hat / (sqrt(v_hat) + eps) + weight_decay * w is scaled to the length of w (by 1
    if either is 0). `total` adds up sums of squares over the ranks that hold parts of the arrays:
    {name: []} -> {name: []}.
    """

    total = staticmethod(lambda sums: sums)

    def step(self, params, grads, lr):
        self.t += 1
        steps = {}
        for name, p in params.items():
            decay = self.weight_decay if name in self.decay else 0.0
            steps[name] = self.direction(grads[name], self.m[name], self.v[name]) + decay * p
        w_sums = self.total({name: square_sum(p) for name, p in params.items()})
        u_sums = self.total({name: square_sum(u) for name, u in steps.items()})
        for name, p in params.items():
            known = (w_sums[name] > 0) & (u_sums[name] > 0)
            ratio = np.where(known, w_sums[name], 1.0) / np.where(known, u_sums[name], 1.0)  # []
            p -= lr * np.sqrt(ratio) * steps[name]


def square_sum(x):
    """The sum of squares of an array's elements, in float64 where it has numbers: [...] -> []."""
    return sum((piece * piece).sum(dtype=np.float64) for (piece,) in pieces(x))


def clip(grads, max_norm, total=lambda squares: sum(squares.values())):
    """Scale gradients in place so that the norm of them all is at most max_norm; that before, [].

    `total` adds up the arrays' square sums, {name: []} -> [], and those of other ranks if they
    hold parts.
    """
    norm = np.sqrt(total({name: square_sum(g) for name, g in grads.items()}))
    scale = 1 / np.maximum(norm / max_norm, 1)  # 1 if max_norm is infinite
    for g in grads.values():
        for (piece,) in pieces(g):
            piece *= scale.astype(piece.dtype)
    return norm


OPTIMIZERS = {"adamw": AdamW, "lamb": Lamb}
