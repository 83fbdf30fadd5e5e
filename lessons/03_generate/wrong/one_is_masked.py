# caught by: check_square
# A mask is 1 where something is masked.
import numpy as np


def causal_mask(n_q, n_kv):
    return np.arange(n_kv) > np.arange(n_kv - n_q, n_kv)[:, None]
