# The backward passes from the last micro-batch to the first, on all stages; divided at the end.
def pipeline_gradient(pp, w, xs, ts):
    held, losses = [], []
    for i in range(len(xs)):
        x = xs[i] if pp.rank == 0 else pp.recv(pp.rank - 1)
        held.append(x)
        if pp.rank < pp.size - 1:
            pp.send(x @ w, pp.rank + 1)
        else:
            losses.append((x @ w - ts[i]) / sum(t.shape[0] for t in ts))
    gradient = w * 0
    while held:
        x = held.pop()
        dy = losses.pop() if pp.rank == pp.size - 1 else pp.recv(pp.rank + 1)
        gradient += x.T @ dy
        if pp.rank:
            pp.send(dy @ w.T, pp.rank - 1)
    return gradient
