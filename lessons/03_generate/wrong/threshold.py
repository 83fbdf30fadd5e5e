# caught by: check_small_p
# p is the probability that a token needs to stay.
import numpy as np


def top_p(probs, p):
    kept = np.where(probs >= min(p, probs.max()), probs, 0.0)
    return kept / kept.sum()
