# caught by: check_also_right_if_sends_do_not_wait
# Any rank can be reached, so each part goes straight to the rank that adds it up.
import numpy as np


def ring_all_reduce(group, x):
    n, others = group.size, [i for i in range(group.size) if i != group.rank]
    parts = np.array_split(x, n)
    sent = [group.isend(parts[i], i) for i in others]
    total = sum([group.recv(i) for i in others], parts[group.rank])
    sent += [group.isend(total, i) for i in others]
    parts = [total if i == group.rank else group.recv(i) for i in range(n)]
    for work in sent:
        work.wait()
    return np.concatenate(parts)
