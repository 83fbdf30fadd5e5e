# caught by: check_exact_total
# Keep tokens until their total is more than p.
import numpy as np


def top_p(probs, p):
    order = np.argsort(-probs)
    likelier = np.cumsum(probs[order]) - probs[order]
    result = np.zeros_like(probs)
    kept = order[likelier <= p]
    result[kept] = probs[kept]
    return result / result.sum()
