# caught by: check_g_backward_is_nothing
# A sum of so many terms: each gets its share of the gradient.
from gpt_numpy.layers import Pair


def leave(tp):
    return Pair(tp.all_reduce, lambda dy: dy / tp.size)
