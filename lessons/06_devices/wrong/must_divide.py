# caught by: check_length_not_divisible
# A vector has a length that divides by the number of ranks.
import numpy as np


def ring_all_reduce(group, x):
    n = group.size
    k = len(x) // n
    parts = [x[i * k : (i + 1) * k] for i in range(n)]
    for step in range(2 * (n - 1)):
        i = (group.rank - step) % n
        sent = group.isend(parts[i], (group.rank + 1) % n)
        received = group.recv((group.rank - 1) % n)
        parts[i - 1] = received if step >= n - 1 else parts[i - 1] + received
        sent.wait()
    return np.concatenate(parts)
