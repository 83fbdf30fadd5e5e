# caught by: check_all_reduce_of_a_gigabyte
# Every rank sends its vector to all others.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    steps = (n - 1) * (2 if op == "all_reduce" else 1)
    return steps * (latency + size / bandwidth)
