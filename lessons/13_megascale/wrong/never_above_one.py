# caught by: check_it_may_be_above_1
# An efficiency cannot be above 1, so I cut it off there.
def scaling_efficiency(n0, t0, n, t):
    return min(1.0, n0 * t0 / (n * t))
