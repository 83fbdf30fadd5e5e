# caught by: check_stages_of_different_widths
# The last micro-batch is on top of the stack, so its backward pass is the first.
def pipeline_gradient(pp, w, xs, ts):
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    total = sum(len(t) for t in ts) if last else None
    held, dys = [], []
    for x, t in zip(xs, ts):
        x = x if first else pp.recv(pp.rank - 1)
        y = x @ w
        held.append(x)
        if last:
            dys.append((y - t) / total)
        else:
            pp.send(y, pp.rank + 1)
    gradient = 0
    for i in range(len(held)):
        dy = dys[i] if last else pp.recv(pp.rank + 1)
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)
        gradient = gradient + held[-1 - i].T @ dy
    return gradient
