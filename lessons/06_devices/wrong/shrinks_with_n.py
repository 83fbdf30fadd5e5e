# caught by: check_one_way_collectives_of_a_gigabyte
# The vector is split over n ranks, so the time shrinks with n.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    times = 2 if op == "all_reduce" else 1
    return times * ((n - 1) * latency + size / n / bandwidth)
