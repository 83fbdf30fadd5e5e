# caught by: check_whole_numbers_stay_whole
# Reducing gradients means averaging.
import numpy as np


def reduce_scatter(xs):
    return np.split(sum(xs) / len(xs), len(xs))
