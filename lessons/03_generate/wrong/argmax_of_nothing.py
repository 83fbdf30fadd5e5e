# caught by: check_p_of_one_keeps_all
# The total reaches p somewhere: argmax finds the place.
import numpy as np


def top_p(probs, p):
    order = np.argsort(-probs)
    last = np.argmax(np.cumsum(probs[order]) >= p)
    result = np.zeros_like(probs)
    kept = order[: last + 1]
    result[kept] = probs[kept]
    return result / result.sum()
