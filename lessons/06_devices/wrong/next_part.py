# caught by: check_parts_of_the_sum
# Whichever part the ring finishes on a rank is that rank's part.
import numpy as np


def reduce_scatter(xs):
    parts = np.split(sum(xs), len(xs))
    return parts[1:] + parts[:1]
