# caught by: check_as_few_as_needed_of_equal_ones
# The token that reaches p sets a threshold, and all that are as likely stay.
import numpy as np


def top_p(probs, p):
    likeliest = -np.sort(-probs)
    reached = np.cumsum(likeliest) - likeliest < p
    kept = np.where(probs >= likeliest[reached].min(), probs, 0.0)
    return kept / kept.sum()
