"""Lesson 5: write the backward pass yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 5` says what passes.
Hints are at the end.
"""

import numpy as np  # noqa: F401


def linear_backward(x, w, dy):
    """The gradients of y = x @ w + b, given dy, the loss's gradient with respect to y.

    Whatever mean the loss takes is in dy already. Gradients have the dtype of x.
    x: [b, s, d_in], w: [d_in, d_out], dy: [b, s, d_out]
    -> dx [b, s, d_in], {"w": [d_in, d_out], "b": [d_out]}

    >>> x = np.array([[[1.0, 2.0], [0.0, 1.0]]])  # one sequence of two tokens
    >>> dy = np.array([[[1.0], [3.0]]])
    >>> dx, grads = linear_backward(x, np.array([[10.0], [20.0]]), dy)
    >>> dx.tolist(), grads["w"].tolist(), grads["b"].tolist()
    ([[[10.0, 20.0], [30.0, 60.0]]], [[1.0], [5.0]], [4.0])
    """
    raise NotImplementedError("two products and a sum")


def cross_entropy_backward(logits, targets):
    """The gradient of the mean cross-entropy with respect to the logits.

    The loss is the mean over the n tokens of -log p(target), where p is the softmax of a token's
    logits. Logits may be large. The gradient has their dtype.
    logits: [n, v], targets: [n] ids -> [n, v]

    >>> cross_entropy_backward(np.zeros((2, 3)), np.array([0, 2])).round(3).tolist()
    [[-0.333, 0.167, 0.167], [0.167, 0.167, -0.333]]
    """
    raise NotImplementedError("the probabilities, less 1 where the target is; then the mean")


def backprop(nodes):
    """The derivatives of the last node with respect to every node of a computation.

    nodes: a list, inputs before what is computed of them, of
        ("leaf", value), ("add", i, j) or ("mul", i, j)
    where i and j are the places of two earlier nodes in the list, maybe the same.
    -> a list of as many numbers; the last is 1. Going backward, each node is worked on once.

    >>> a, b, c, d = ("leaf", 2), ("leaf", 3), ("mul", 0, 1), ("add", 2, 0)  # d = a * b + a
    >>> backprop([a, b, c, d])
    [4, 2, 1, 1]
    """
    raise NotImplementedError("values forward; then from the last node to the first, pass on")


# Hints
#
# linear_backward         Shapes nearly decide it: which product of dy and w has x's shape? A row
#                         of w meets every token of every sequence, so its gradient is a sum over
#                         all of them, and so is that of b.
# cross_entropy_backward  For one token: p, less 1 at its target. Which token's row and which
#                         column? To keep exp from overflowing, take away each row's maximum.
# backprop                d(i + j)/di = 1 and d(i * j)/di = j. A node that is used twice gets two
#                         contributions. Which order makes sure that both are there before it
#                         passes anything on?
