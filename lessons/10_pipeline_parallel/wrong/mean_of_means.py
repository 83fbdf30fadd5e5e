# caught by: check_uneven_micro_batches
# Each micro-batch has its mean loss, and the batch has the mean of those.
def pipeline_gradient(pp, w, xs, ts):
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    held, dys = [], []
    for x, t in zip(xs, ts):
        x = x if first else pp.recv(pp.rank - 1)
        y = x @ w
        held.append(x)
        if last:
            dys.append((y - t) / len(t) / len(ts))
        else:
            pp.send(y, pp.rank + 1)
    gradient = 0
    for i, x in enumerate(held):
        dy = dys[i] if last else pp.recv(pp.rank + 1)
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)
        gradient = gradient + x.T @ dy
    return gradient
