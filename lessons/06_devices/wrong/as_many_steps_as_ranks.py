# caught by: check_all_reduce_of_a_gigabyte
# Once around a ring of n ranks is n steps.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    return n * (2 if op == "all_reduce" else 1) * (latency + size / n / bandwidth)
