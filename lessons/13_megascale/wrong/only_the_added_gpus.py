# caught by: check_published_seconds
# The first GPUs were there before; what is judged is what the new ones add.
def scaling_efficiency(n0, t0, n, t):
    return 1.0 if n == n0 else (t0 / t - 1) / (n / n0 - 1)
