# caught by: check_few_ranks
# Bytes are whole numbers, and a parameter more or less does not matter.
def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    parts = {3: 2, 2: grad_bytes, 1: 12}
    return sum(size * (n_params // (dp if zero >= stage else 1)) for stage, size in parts.items())
