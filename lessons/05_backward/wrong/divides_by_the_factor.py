# caught by: check_computations_at_random
# The slope of a product along one factor is the product over that factor.
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
            factor = values[place] / values[i] if values[i] else 0
            grads[i] += grads[place] * (1 if kind == "add" else factor)
    return grads
