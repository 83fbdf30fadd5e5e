# caught by: check_g_forward_is_a_sum
# Each rank has computed y, so take the average.
from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def leave(tp):
    return Pair(lambda y: tp.all_reduce(y) / tp.size, identity)
