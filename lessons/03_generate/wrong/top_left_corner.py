# caught by: check_chunk_after_cache
# A causal mask is a triangle that begins in the top left corner.
import numpy as np


def causal_mask(n_q, n_kv):
    return np.tri(n_q, n_kv, dtype=int)
