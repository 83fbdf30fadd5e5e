# caught by: check_sum_on_every_rank
# A message leaves before the other side asks for it.
import numpy as np


def ring_all_reduce(group, x):
    n, rank = group.size, group.rank
    parts = [part.copy() for part in np.array_split(x, n)]
    for step in range(1, 2 * n - 1):
        i = (rank - step) % n
        group.send(parts[i], (rank + 1) % n)
        received = group.recv((rank - 1) % n)
        parts[i - 1] = received if step >= n else parts[i - 1] + received
    return np.concatenate(parts)
