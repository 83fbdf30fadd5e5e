# caught by: check_7_5_billion_on_64
# Stage 2 splits the 32-bit gradients, the 16-bit ones stay.
def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    if zero == 3:
        return (2 + grad_bytes + 12) * n_params / dp
    return (2 + grad_bytes) * n_params + 12 * n_params / (dp if zero else 1)
