# caught by: check_crossing_token_is_kept
# The sorted probabilities, cut off, are the answer.
import numpy as np


def top_p(probs, p):
    likeliest = -np.sort(-probs)
    kept = np.where(np.cumsum(likeliest) - likeliest < p, likeliest, 0.0)
    return kept / kept.sum()
