# caught by: check_one_way_collectives_of_a_gigabyte
# The size of an all-gather is what one rank puts in.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    if op == "all_reduce":
        return 2 * (n - 1) * (latency + size / n / bandwidth)
    return (n - 1) * (latency + size / bandwidth)
