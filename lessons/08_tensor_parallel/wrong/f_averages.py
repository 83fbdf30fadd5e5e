# caught by: check_f_backward_is_a_sum
# Gradients that several ranks have of one x are averaged.
from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(identity, lambda dx: tp.all_reduce(dx) / tp.size)
