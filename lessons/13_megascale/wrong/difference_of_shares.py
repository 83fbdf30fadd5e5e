# caught by: check_more_gpus_for_nothing
# Twice the GPUs should save half of the time: I compare what was saved with what should have been.
def scaling_efficiency(n0, t0, n, t):
    return 1.0 if n == n0 else (t0 - t) / (t0 - t0 * n0 / n)
