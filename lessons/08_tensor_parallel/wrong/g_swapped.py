# caught by: check_g_forward_is_a_sum
# Leaving, a rank has its part of y, and the gradients are to be summed.
from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def leave(tp):
    return Pair(identity, tp.all_reduce)
