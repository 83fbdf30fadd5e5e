# caught by: check_stages_of_different_widths
# 1F1B is a better order, and a send is a send.
def pipeline_gradient(pp, w, xs, ts):
    first, last, m = pp.rank == 0, pp.rank == pp.size - 1, len(xs)
    held, gradient = [], 0

    def forward(i):
        x = xs[i] if first else pp.recv(pp.rank - 1)
        held.append((x, (x @ w - ts[i]) / sum(len(t) for t in ts) if last else None))
        if not last:
            pp.send(x @ w, pp.rank + 1)

    def backward():
        x, dy = held.pop(0)
        dy = dy if last else pp.recv(pp.rank + 1)
        if not first:
            pp.send(dy @ w.T, pp.rank - 1)
        return x.T @ dy

    n = min(m, pp.size - 1 - pp.rank)
    for i in range(n):
        forward(i)
    for i in range(n, m):
        forward(i)
        gradient = gradient + backward()
    for _ in range(n):
        gradient = gradient + backward()
    return gradient
