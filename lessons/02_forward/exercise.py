"""Lesson 2: write the heart of the forward pass yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 2` says what passes.
Hints are at the end. Everything is in float64.
"""

import numpy as np  # noqa: F401


def merge_heads(y):
    """Put what the heads make of a token next to each other, head 0 first.

    y: [h, n, e], of h heads, n tokens, e numbers each -> [n, h * e]

    >>> y = np.array([[[1, 2], [3, 4], [5, 6]], [[10, 20], [30, 40], [50, 60]]])  # [2, 3, 2]
    >>> merge_heads(y).tolist()
    [[1, 2, 10, 20], [3, 4, 30, 40], [5, 6, 50, 60]]
    """
    raise NotImplementedError("one row for each token, with all of its heads in it")


def causal_attention(q, k, v):
    """Attention of one head, in which token t reads the tokens 0 to t.

    The weights of token t are the softmax of its scores q[t] . k[j] / sqrt(e) over j = 0 ... t.
    They stay finite however large the scores are, those of later tokens, too.
    q, k: [n, e]; v: [n, f] -> [n, f]

    >>> same = np.zeros((3, 2))  # all scores are 0, so each token takes a mean
    >>> causal_attention(same, same, np.array([[1.0], [3.0], [8.0]])).tolist()
    [[1.0], [2.0], [4.0]]
    """
    raise NotImplementedError("scores, mask, softmax, and the mean of v that they weigh")


def lm_loss(logits, ids):
    """The mean cross-entropy of predicting each token from those before it, in nats.

    Row t of the logits says what the model expects after token t: it is to predict ids[t + 1]. So
    n tokens make n - 1 predictions, and the last row predicts nothing that is there. The loss is
    the mean of -log(softmax(row)[what came]). It stays finite however large the logits are.
    logits: [n, v]; ids: [n], n at least 2 -> a number

    >>> f"{lm_loss(np.zeros((4, 3)), np.array([0, 1, 2, 1])):.4f}"  # it knows nothing: log(3)
    '1.0986'
    """
    raise NotImplementedError("pair each row with the token that comes next")


# Hints
#
# merge_heads       reshape keeps the order in which the numbers lie in memory. Which axis has to
#                   come first before it? np.arange(12).reshape(2, 3, 2) is easy to look at.
# causal_attention  A score of -inf gets the weight exp(-inf) = 0, and the others share all of 1.
#                   np.tri(n) is a triangle. Softmax does not change if a constant is taken from
#                   all scores of a row; after taking the largest of those that are left,
#                   none can overflow, and not all of them become 0.
# lm_loss           Which rows are left if the last one goes? Which ids are left if the first one
#                   goes? log(softmax(x)) is x - log(sum(exp(x))); take the largest x off first.
