# caught by: check_published_seconds
# What counts is the GPU time of a step: after over before.
def scaling_efficiency(n0, t0, n, t):
    return (n * t) / (n0 * t0)
