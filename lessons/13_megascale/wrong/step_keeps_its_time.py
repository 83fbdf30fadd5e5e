# caught by: check_published_seconds
# A job that scales keeps its time per step, so efficiency is the old time over the new one, 1 at
# best.
def scaling_efficiency(n0, t0, n, t):
    return min(1.0, t0 / t)
