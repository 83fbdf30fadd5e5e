# caught by: check_chunk_after_cache
# With a cache everything that is there is past, so nothing needs to be masked.
import numpy as np


def causal_mask(n_q, n_kv):
    return np.ones((n_q, n_kv), int)
