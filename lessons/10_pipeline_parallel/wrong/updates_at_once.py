# caught by: check_equal_micro_batches
# Weights can be updated as soon as a backward is done.
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
    for i, x in enumerate(held):
        dy = dys[i] if last else pp.recv(pp.rank + 1)
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)
        part = x.T @ dy
        w = w - 0.1 * part
        gradient = gradient + part
    return gradient
