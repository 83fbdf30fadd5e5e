# caught by: check_7_5_billion_on_64
# Stage 1 splits what the optimizer uses, gradients included.
def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    weights = 2 * n_params / (dp if zero == 3 else 1)
    return weights + (12 + grad_bytes) * n_params / (dp if zero else 1)
