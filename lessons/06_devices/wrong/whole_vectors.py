# caught by: check_bytes_sent_by_each_rank
# Passing the vectors around the ring is a ring all-reduce.
def ring_all_reduce(group, x):
    total, travelling = x, x
    for _ in range(group.size - 1):
        sent = group.isend(travelling, (group.rank + 1) % group.size)
        travelling = group.recv((group.rank - 1) % group.size)
        sent.wait()
        total = total + travelling
    return total
