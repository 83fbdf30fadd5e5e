# caught by: check_two_stages_of_a_number_each
# A stage keeps the activations of its current micro-batch.
def pipeline_gradient(pp, w, xs, ts):
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    total = sum(len(t) for t in ts) if last else None
    dys = []
    for x, t in zip(xs, ts):
        x = x if first else pp.recv(pp.rank - 1)
        y = x @ w
        if last:
            dys.append((y - t) / total)
        else:
            pp.send(y, pp.rank + 1)
    gradient = 0
    for i in range(len(xs)):
        dy = dys[i] if last else pp.recv(pp.rank + 1)
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)
        gradient = gradient + x.T @ dy
    return gradient
