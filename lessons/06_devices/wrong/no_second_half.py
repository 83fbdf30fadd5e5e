# caught by: check_sum_on_every_rank
# After n - 1 steps everything has been everywhere.
import numpy as np


def ring_all_reduce(group, x):
    n, rank = group.size, group.rank
    parts = [part.copy() for part in np.array_split(x, n)]
    for step in range(1, n):
        i = (rank - step) % n
        sent = group.isend(parts[i], (rank + 1) % n)
        parts[i - 1] = parts[i - 1] + group.recv((rank - 1) % n)
        sent.wait()
    return np.concatenate(parts)
