"""GPT-2's forward pass: embed, blocks, logits. NumPy and nothing else.

Shapes: n new tokens after `past` cached ones, m = past + n; d = n_embd, h = n_head, e = d / h,
v = n_vocab; "..." is nothing, or a batch. A batch of texts of several lengths is padded on the
right and needs no mask for that: no token reads what comes after it.

`enter` and `leave` stand where tensor-parallel ranks talk (f and g of arXiv 1909.08053, section
3); on one device they do nothing. Each of tp ranks has h/tp heads and 4d/tp hidden units, and
`leave` sums what they make of them: {partial: tp} marks arrays that are the addends of that sum.
`like=x` makes an array on x's device, of which NumPy's arrays know only one.
"""

import numpy as np


def identity(x):
    return x


def gelu(x):  # [...] -> [...], the tanh form that GPT-2 was trained with
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def softmax(x):  # [..., m] -> [..., m], in x's own memory
    x -= x.max(axis=-1, keepdims=True)  # [..., m] - [..., 1]
    np.exp(x, out=x)  # [..., m]
    x /= x.sum(axis=-1, keepdims=True)  # [..., m] / [..., 1]
    return x


def layer_norm(x, g, b):  # [..., d], [d], [d] -> [..., d]
    x = x - x.mean(axis=-1, keepdims=True)  # [..., d] - [..., 1]
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * g + b


def linear(x, w, b):  # [..., d_in], [d_in, d_out], [d_out] -> [..., d_out]
    return x @ w + b


def attention_mask(n, m, x, prefix=0, window=None):  # -> [n, m] like x, added to the scores
    i = np.arange(m - n, m, like=x)[:, None]  # [n, 1], the queries' positions
    j = np.arange(m, like=x)  # [m], the keys' positions
    seen = (j <= i) | (j < prefix)  # [n, m]: causal, but the prefix reads all of itself
    if window is not None:
        seen = seen & (j > i - window)  # [n, m]: of the keys only the last `window`
    return np.where(seen, 0.0, -np.inf).astype(x.dtype)  # [n, m]


def attention(x, c_attn, c_proj, n_head, mask, kv=None, past=0):  # -> [..., n, d] {partial: tp}
    *batch, n, _ = x.shape
    qkv = linear(x, **c_attn).reshape(*batch, n, 3, n_head, -1)  # [..., n, 3, h/tp, e]
    q, k, v = np.moveaxis(qkv, (-3, -2), (0, -3))  # three times [..., h/tp, n, e]
    if kv is not None:
        kv[0, ..., past : past + n, :] = k  # [2, ..., h/tp, n_ctx, e] keeps the new keys
        kv[1, ..., past : past + n, :] = v  # and values after those of the past
        k, v = kv[..., : past + n, :]  # two times [..., h/tp, m, e]
    scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2) + mask  # [..., h/tp, n, m]
    heads = softmax(scores) @ v  # [..., h/tp, n, m] @ [..., h/tp, m, e] -> [..., h/tp, n, e]
    heads = heads.swapaxes(-2, -3).reshape(*batch, n, -1)  # [..., n, d/tp]
    return heads @ c_proj["w"]  # [..., n, d/tp] @ [d/tp, d] -> [..., n, d]; its bias: see block


def feed_forward(x, c_fc, c_proj):  # [..., n, d] -> [..., n, d] {partial: tp}
    return gelu(linear(x, **c_fc)) @ c_proj["w"]  # [..., n, 4d/tp] @ [4d/tp, d]


def block(x, ln_1, attn, mlp, ln_2=None, enter=identity, leave=identity, **how):  # -> [..., n, d]
    y = enter(layer_norm(x, **ln_1))  # [..., n, d]
    a = attention(y, **attn, **how)  # [..., n, d] {partial: tp}
    if ln_2 is None:  # MegaScale's parallel block (arXiv 2402.15627, 3.1): both read one norm
        a = leave(a + feed_forward(y, **mlp))  # [..., n, d]
        return x + a + attn["c_proj"]["b"] + mlp["c_proj"]["b"]
    x = x + leave(a) + attn["c_proj"]["b"]  # [..., n, d]; the bias is added once, after the sum
    y = enter(layer_norm(x, **ln_2))  # [..., n, d]
    return x + leave(feed_forward(y, **mlp)) + mlp["c_proj"]["b"]


def new_cache(wpe, blocks, n_head, batch=(), **_):  # -> [2, ..., h, n_ctx, e] for each block
    shape = (2, *batch, n_head, len(wpe), wpe.shape[-1] // n_head)
    return [np.empty(shape, wpe.dtype, like=wpe) for _ in blocks]


def gpt2(
    tokens, wte, wpe, blocks, ln_f, n_head, *,
    cache=None, past=0, last=False, prefix=0, window=None,
):  # fmt: skip
    """Logits of what follows each token: ids [..., n] -> [..., n, v], or with `last` [..., v].

    cache   keys and values of the `past` tokens before these, from `new_cache`; it gets these, too
    last    only those of the last token
    prefix  so many tokens, all in the first call, read each other in both directions
    window  each token reads the last `window` tokens only, itself included
    """
    x = wte[tokens]  # [..., n] -> [..., n, d]
    n = x.shape[-2]
    m = past + n
    if m > len(wpe) or (past and cache is None):
        raise ValueError(f"{past} + {n} tokens: n_ctx is {len(wpe)}, and a past needs its cache")
    if not past and prefix > n:
        raise ValueError(f"a prefix of {prefix} tokens must come in one call, not {n} at first")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}, but a token reads itself: it is 1 at least")
    x = x + wpe[past:m]  # [..., n, d] + [n, d]
    mask = attention_mask(n, m, x, prefix, window)  # [n, m]
    for params, kv in zip(blocks, cache or [None] * len(blocks)):
        x = block(x, **params, n_head=n_head, mask=mask, kv=kv, past=past)  # [..., n, d]
    x = x[..., -1, :] if last else x  # [..., d]
    return layer_norm(x, **ln_f) @ wte.T  # [..., d] @ [d, v] -> [..., v]
