# caught by: check_leaving_sums_and_scatters
# Leaving is g, as in lesson 8: an all-reduce forward, nothing backward.
from gpt_numpy.layers import Pair


def leave(tp):
    return Pair(tp.all_reduce, lambda dy: dy)
