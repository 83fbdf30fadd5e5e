# caught by: check_all_reduce_of_a_gigabyte
# An all-reduce moves the data once.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    return (n - 1) * (latency + size / n / bandwidth)
