# Row by row; and a node passes on when all of its users have.
import numpy as np


def linear_backward(x, w, dy):
    dx, dw, db = np.zeros_like(x), np.zeros_like(w), np.zeros_like(w[0])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            dx[i, j] = w @ dy[i, j]
            dw += np.outer(x[i, j], dy[i, j])
            db += dy[i, j]
    return [dx, {"w": dw, "b": db}]


def cross_entropy_backward(logits, targets):
    d = np.empty_like(logits)
    for row, z, t in zip(d, logits, targets):
        p = np.exp(z - z.max())
        row[:] = p / p.sum()
        row[t] -= 1
        row /= len(logits)
    return d


def backprop(nodes):
    pairs = {k: node[1:] for k, node in enumerate(nodes) if node[0] != "leaf"}
    values = []
    for kind, *inputs in nodes:
        if kind == "leaf":
            values += inputs
        else:
            a, b = map(values.__getitem__, inputs)
            values.append({"add": a + b, "mul": a * b}[kind])
    users = [sum(k in pair for pair in pairs.values()) for k in range(len(nodes))]
    grads = [0] * (len(nodes) - 1) + [1]
    ready = [k for k, count in enumerate(users) if count == 0]
    while ready:
        k = ready.pop()
        if k in pairs:
            i, j = pairs[k]
            grads[i] += grads[k] * (values[j] if nodes[k][0] == "mul" else 1)
            grads[j] += grads[k] * (values[i] if nodes[k][0] == "mul" else 1)
            for input in {i, j}:
                users[input] -= 1
                if users[input] == 0:
                    ready.append(input)
    return grads
