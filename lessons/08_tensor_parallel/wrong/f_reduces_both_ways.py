# caught by: check_f_forward_is_nothing
# The gradient of an all-reduce is an all-reduce, so it has to be one forward, too.
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(tp.all_reduce, tp.all_reduce)
