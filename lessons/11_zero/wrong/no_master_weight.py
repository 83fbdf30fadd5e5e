# caught by: check_7_5_billion_on_64
# Adam has two states per parameter.
def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    parts = {3: 2, 2: grad_bytes, 1: 8}
    return sum(n_params * size / (dp if zero >= stage else 1) for stage, size in parts.items())
