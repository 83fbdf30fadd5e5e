# caught by: check_fp32_gradients
# It is 16 bytes, whatever the gradients are.
def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    parts = {3: 2, 2: 2, 1: 12}
    return sum(n_params * size / (dp if zero >= stage else 1) for stage, size in parts.items())
