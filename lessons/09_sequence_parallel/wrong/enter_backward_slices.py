# caught by: check_entering_backward_sums_and_scatters
# The backward of an all-gather is taking one's own slice.
import numpy as np

from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(tp.all_gather, lambda dx: np.split(dx, tp.size)[tp.rank])
