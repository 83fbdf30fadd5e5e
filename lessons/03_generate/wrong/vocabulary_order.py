# caught by: check_crossing_token_is_kept
# A running total can be taken as the probabilities stand.
import numpy as np


def top_p(probs, p):
    kept = np.where(np.cumsum(probs) - probs < p, probs, 0.0)
    return kept / kept.sum()
