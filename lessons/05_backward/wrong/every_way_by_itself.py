# caught by: check_forty_doublings_take_forty_steps
# The derivative is the sum over all ways from the last node, so follow each of them.
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
    grads[-1] = 0

    def follow(place, slope):
        grads[place] += slope
        kind, *inputs = nodes[place]
        if kind != "leaf":
            i, j = inputs
            follow(i, slope * (1 if kind == "add" else values[j]))
            follow(j, slope * (1 if kind == "add" else values[i]))

    follow(len(nodes) - 1, 1)
    return grads
