# caught by: check_small_messages_cost_latency
# Time is bytes by bandwidth.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    return (n - 1) * (2 if op == "all_reduce" else 1) * size / n / bandwidth
