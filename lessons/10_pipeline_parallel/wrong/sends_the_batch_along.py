# caught by: check_bytes_sent_by_each_stage
# Going back, the next stage sends what it got as well, so nobody has to keep activations.
def pipeline_gradient(pp, w, xs, ts):
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    held, dys = [], []
    for x, t in zip(xs, ts):
        x = x if first else pp.recv(pp.rank - 1)
        y = x @ w
        if last:
            dys.append((y - t) / sum(len(t) for t in ts))
        else:
            pp.send(y, pp.rank + 1)
            pp.send(x, pp.rank + 1)
        held.append(x if first else (x, pp.recv(pp.rank - 1)))
    gradient = 0
    for i, kept in enumerate(held):
        dy = dys[i] if last else pp.recv(pp.rank + 1)
        x = kept if first else kept[0]
        mine = x if last else pp.recv(pp.rank + 1)
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)
            pp.send(kept[1], pp.rank - 1)
        gradient = gradient + mine.T @ dy
    return gradient
