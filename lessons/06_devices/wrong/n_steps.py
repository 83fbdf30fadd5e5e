# caught by: check_sum_on_every_rank
# n ranks need n steps.
import numpy as np


def ring_all_reduce(group, x):
    n = group.size
    if n == 1:
        return x
    parts = [part.copy() for part in np.array_split(x, n)]
    for step in range(n + n - 1):
        i = (group.rank - step) % n
        sent = group.isend(parts[i], (group.rank + 1) % n)
        received = group.recv((group.rank - 1) % n)
        parts[i - 1] = received if step >= n else parts[i - 1] + received
        sent.wait()
    return np.concatenate(parts)
