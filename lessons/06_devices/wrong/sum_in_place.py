# caught by: check_parts_of_the_sum
# The first array is as good as any to add the others to.
import numpy as np


def reduce_scatter(xs):
    for x in xs[1:]:
        xs[0] += x
    return np.split(xs[0].copy(), len(xs))
