"""From logits to text: greedy, temperature, top-k, top-p, and the loop that feeds tokens back."""

from functools import partial

import numpy as np

from gpt_numpy.gpt2 import gpt2, new_cache

CHUNK = 256  # tokens of a prompt that the model reads at a time: it skips what the mask hides


def probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """The distribution to draw the next token from: [v] -> [v], float64.

    temperature  divides the logits. 0 leaves the likeliest token alone, the first if several are
    top_k        leaves the k likeliest, and with them those as likely as the kth; None, or 0: all
    top_p        then leaves the fewest likeliest tokens that have this probability together

    Sums are in float64: in float32, 50,257 probabilities need not add up to 1.

    >>> probabilities(np.log([0.1, 0.2, 0.3, 0.4]), top_p=0.6).round(3).tolist()
    [0.0, 0.0, 0.429, 0.571]
    """
    logits = np.asarray(logits, np.float64)
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}, expected 0 or more")
    if top_k is not None and top_k < 0:
        raise ValueError(f"top_k is {top_k}, expected 1 or more (0 is off)")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}, expected more than 0 and at most 1")
    if not np.isfinite(logits.max()):
        raise ValueError(
            "the logits are not finite: the model's weights are damaged, or its training diverged"
        )
    if temperature == 0:
        return np.eye(1, len(logits), logits.argmax())[0]
    p = np.exp((logits - logits.max()) / max(temperature, 1e-300))  # [v]; smaller may overflow
    if top_k and top_k < len(logits):
        p[logits < np.partition(logits, -top_k)[-top_k]] = 0
    p /= p.sum()
    if top_p is not None:
        order = np.argsort(-p, kind="stable")  # [v], likeliest first, of equals the first
        before = np.cumsum(p[order]) - p[order]  # [v], the probability of those likelier
        p[order[before >= top_p]] = 0
        p /= p.sum()
    return p


def generate(
    params, n_head, tokens, n, *, temperature=1.0, top_k=None, top_p=None, seed=None, cached=True
):
    """Yield n token ids that follow `tokens`, one by one.

    When the context is full, the older half is dropped: the newer n_ctx // 2 tokens move to the
    front and are read again. The cache changes the time this takes and not the tokens.
    """
    n_ctx = len(params["wpe"])
    if not 0 < len(tokens) <= n_ctx:
        raise ValueError(
            f"the prompt has {len(tokens)} tokens, expected 1 to {n_ctx}, "
            "which is what the model can read"
        )
    if n < 0:
        raise ValueError(f"n is {n}, expected 0 or more tokens")
    rng = np.random.default_rng(seed)
    tokens = list(tokens)
    cache, past = None, 0
    next_logits = partial(gpt2, **params, n_head=n_head, last=True)
    for _ in range(n):
        if len(tokens) > n_ctx:
            tokens, past = tokens[-max(1, n_ctx // 2) :], 0
        if cached:
            cache = cache or new_cache(**params, n_head=n_head)
            while past < len(tokens):
                new = tokens[past : past + CHUNK]
                logits = next_logits(new, cache=cache, past=past)  # [v]
                past += len(new)
        else:
            logits = next_logits(tokens)  # [v]
        p = probabilities(logits, temperature, top_k, top_p)  # [v]
        tokens.append(int(rng.choice(len(p), p=p)))
        yield tokens[-1]
