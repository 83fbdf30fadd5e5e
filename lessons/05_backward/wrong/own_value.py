# caught by: check_a_tree
# The derivative along a factor has that factor in it.
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
        for i in inputs if kind != "leaf" else ():
            grads[i] += grads[place] * (1 if kind == "add" else values[i])
    return grads
