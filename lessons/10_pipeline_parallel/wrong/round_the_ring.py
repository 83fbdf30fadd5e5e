# caught by: check_two_stages_of_a_number_each
# Ranks stand in a ring: everyone has one before and one after.
def pipeline_gradient(pp, w, xs, ts):
    before, after = (pp.rank - 1) % pp.size, (pp.rank + 1) % pp.size
    last, held, gradient = pp.rank == pp.size - 1, [], 0
    for i in range(len(xs)):
        x = xs[i] if pp.rank == 0 else pp.recv(before)
        held.append(x)
        pp.isend(x @ w, after)
    for i, x in enumerate(held):
        dy = (x @ w - ts[i]) / sum(len(t) for t in ts) if last else pp.recv(after)
        pp.isend(dy @ w.T, before)
        gradient = gradient + x.T @ dy
    return gradient
