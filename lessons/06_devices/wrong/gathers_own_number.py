# caught by: check_sum_on_every_rank
# After the first half every rank owns the part with its own number.
import numpy as np


def ring_all_reduce(group, x):
    n = group.size
    parts = [part.copy() for part in np.array_split(x, n)]
    for step in range(2 * (n - 1)):
        i = (group.rank - step + (n - 1 if step >= n - 1 else 0)) % n
        sent = group.isend(parts[i], (group.rank + 1) % n)
        received = group.recv((group.rank - 1) % n)
        parts[i - 1] = received if step >= n - 1 else parts[i - 1] + received
        sent.wait()
    return np.concatenate(parts)
