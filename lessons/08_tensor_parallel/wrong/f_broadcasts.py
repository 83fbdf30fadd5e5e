# caught by: check_f_forward_is_nothing
# Rank 0 gives its x to the others, as its column-split layer begins.
from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(tp.broadcast, tp.all_reduce)
