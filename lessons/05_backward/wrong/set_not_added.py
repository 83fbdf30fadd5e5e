# caught by: check_used_twice
# A node has one gradient, so it is set.
def backprop(nodes):
    values = []
    for kind, *inputs in nodes:
        if kind == "leaf":
            values.append(inputs[0])
        else:
            a, b = values[inputs[0]], values[inputs[1]]
            values.append(a + b if kind == "add" else a * b)
    grads = [0] * len(nodes)
    grads[-1] = 1
    for place in reversed(range(len(nodes))):
        kind, *inputs = nodes[place]
        if kind != "leaf":
            i, j = inputs
            grads[i] = grads[place] * (1 if kind == "add" else values[j])
            grads[j] = grads[place] * (1 if kind == "add" else values[i])
    return grads
