# caught by: check_f_forward_is_nothing
# First comes the all-reduce: what enters must be the same everywhere.
from gpt_numpy.gpt2 import identity
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(tp.all_reduce, identity)
