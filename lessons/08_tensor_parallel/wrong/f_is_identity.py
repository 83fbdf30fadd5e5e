# caught by: check_f_backward_is_a_sum
# x is on every rank already, so entering is nothing, there and back.
from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(identity, identity)
