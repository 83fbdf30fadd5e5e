# caught by: check_small_messages_cost_latency
# A collective is one call, so it costs one latency.
def ring_seconds(op, n, size, bandwidth, latency=0.0):
    steps = (n - 1) * (2 if op == "all_reduce" else 1)
    return latency * (n > 1) + steps * size / n / bandwidth
