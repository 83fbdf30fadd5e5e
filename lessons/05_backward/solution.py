"""Lesson 5: the answers."""

import numpy as np


def linear_backward(x, w, dy):
    rows_x = x.reshape(-1, x.shape[-1])  # [b, s, d_in] -> [n, d_in]
    rows_dy = dy.reshape(-1, dy.shape[-1])  # [b, s, d_out] -> [n, d_out]
    grads = {"w": rows_x.T @ rows_dy, "b": rows_dy.sum(axis=0)}  # [d_in, d_out], [d_out]
    return dy @ w.T, grads  # [b, s, d_out] @ [d_out, d_in] -> [b, s, d_in]


def cross_entropy_backward(logits, targets):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))  # [n, v]
    p /= p.sum(axis=1, keepdims=True)  # [n, v] / [n, 1]
    p[np.arange(len(targets)), targets] -= 1  # one element of each row
    return p / len(targets)  # [n, v]


def backprop(nodes):
    values = []
    for kind, *inputs in nodes:
        if kind == "leaf":
            values.append(inputs[0])
        else:
            a, b = (values[i] for i in inputs)
            values.append(a + b if kind == "add" else a * b)
    grads = [0] * len(nodes)
    grads[-1] = 1
    for place in reversed(range(len(nodes))):  # all users of a node come after it
        kind, *inputs = nodes[place]
        if kind != "leaf":
            i, j = inputs
            grads[i] += grads[place] * (1 if kind == "add" else values[j])
            grads[j] += grads[place] * (1 if kind == "add" else values[i])
    return grads
