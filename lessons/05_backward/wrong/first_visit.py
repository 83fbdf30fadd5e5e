# caught by: check_results_that_are_shared
# Visiting each node once is enough.
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
    seen = set()

    def visit(place):
        if place in seen:
            return
        seen.add(place)
        kind, *inputs = nodes[place]
        if kind != "leaf":
            i, j = inputs
            grads[i] += grads[place] * (1 if kind == "add" else values[j])
            grads[j] += grads[place] * (1 if kind == "add" else values[i])
            visit(i)
            visit(j)

    visit(len(nodes) - 1)
    return grads
