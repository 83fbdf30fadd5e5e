# Sums by einsum, a one-hot matrix, and micrograd's topological order by recursion.
import numpy as np


def linear_backward(x, w, dy):
    grads = {"b": np.einsum("bso->o", dy), "w": np.einsum("bsi,bso->io", x, dy)}
    return np.einsum("bso,io->bsi", dy, w), grads


def cross_entropy_backward(logits, targets):
    n, v = logits.shape
    one_hot = np.eye(v, dtype=logits.dtype)[targets]
    log_p = logits - logits.max(1)[:, None]
    log_p = log_p - np.log(np.exp(log_p).sum(1))[:, None]
    return (np.exp(log_p) - one_hot) / n


def backprop(nodes):
    values, order, seen = {}, [], set()

    def build(place):
        if place in seen:
            return
        seen.add(place)
        kind, *inputs = nodes[place]
        if kind == "leaf":
            values[place] = float(inputs[0])
        else:
            for i in inputs:
                build(i)
            a, b = (values[i] for i in inputs)
            values[place] = a + b if kind == "add" else a * b
        order.append(place)

    build(len(nodes) - 1)
    grads = [0.0] * len(nodes)
    grads[order[-1]] = 1.0
    for place in reversed(order):
        kind, *inputs = nodes[place]
        if kind == "add":
            for i in inputs:
                grads[i] += grads[place]
        elif kind == "mul":
            i, j = inputs
            grads[i] += values[j] * grads[place]
            grads[j] += values[i] * grads[place]
    return grads
