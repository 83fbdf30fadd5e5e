# Whole bytes per parameter first, divided at the end.
def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    whole = [2 + grad_bytes + 12, 2 + grad_bytes, 2, 0][zero]
    return n_params * whole + n_params * (14 + grad_bytes - whole) / dp
