# caught by: check_sum_on_every_rank
# Both halves of the ring do the same thing.
import numpy as np


def ring_all_reduce(group, x):
    n = group.size
    parts = [part.copy() for part in np.array_split(x, n)]
    for step in range(2 * (n - 1)):
        i = (group.rank - step) % n
        sent = group.isend(parts[i], (group.rank + 1) % n)
        parts[i - 1] = parts[i - 1] + group.recv((group.rank - 1) % n)
        sent.wait()
    return np.concatenate(parts)
