# caught by: check_stages_of_different_widths
# What goes back is the gradient times the same matrix.
def pipeline_gradient(pp, w, xs, ts):
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    held, dys = [], []
    for x, t in zip(xs, ts):
        x = x if first else pp.recv(pp.rank - 1)
        held.append(x)
        if last:
            dys.append((x @ w - t) / sum(len(t) for t in ts))
        else:
            pp.send(x @ w, pp.rank + 1)
    gradient = 0
    for i, x in enumerate(held):
        dy = dys[i] if last else pp.recv(pp.rank + 1)
        gradient = gradient + x.T @ dy
        if not first:
            pp.send(x * dy.sum(axis=1, keepdims=True), pp.rank - 1)
    return gradient
