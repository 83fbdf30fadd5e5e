# caught by: check_g_backward_is_nothing
# The gradient of an all-reduce is an all-reduce.
from gpt_numpy.layers import Pair


def leave(tp):
    return Pair(tp.all_reduce, tp.all_reduce)
