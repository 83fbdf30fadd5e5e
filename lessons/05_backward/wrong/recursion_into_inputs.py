# caught by: check_used_twice
# Recursion into the inputs replaces the ordering.
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

    def visit(place):
        kind, *inputs = nodes[place]
        if kind != "leaf":
            for i, j in (inputs, inputs[::-1]):
                grads[i] += grads[place] * (1 if kind == "add" else values[j])
                visit(i)

    visit(len(nodes) - 1)
    return grads
