# caught by: check_single_token_decode
# The past is what came earlier.
import numpy as np


def causal_mask(n_q, n_kv):
    return np.arange(n_kv) < np.arange(n_kv - n_q, n_kv)[:, None]
