# caught by: check_crossing_token_is_kept
# Keep tokens as long as their total stays below p.
import numpy as np


def top_p(probs, p):
    order = np.argsort(-probs)
    kept = order[np.cumsum(probs[order]) <= p]
    result = np.zeros_like(probs)
    result[kept] = probs[kept]
    return result / result.sum()
