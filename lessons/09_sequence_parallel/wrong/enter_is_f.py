# caught by: check_entering_gathers_tokens
# Entering is f, as in lesson 8: nothing forward, an all-reduce backward.
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(lambda x: x, tp.all_reduce)
