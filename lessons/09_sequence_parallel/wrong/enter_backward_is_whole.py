# caught by: check_entering_backward_sums_and_scatters
# The gradient is a partial sum, so all-reduce it.
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(tp.all_gather, tp.all_reduce)
