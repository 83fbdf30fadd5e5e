# caught by: check_twice_as_many_take_half_the_time
# Efficiency is how many times as fast it got.
def scaling_efficiency(n0, t0, n, t):
    return t0 / t
