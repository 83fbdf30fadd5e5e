# caught by: check_leaving_backward_gathers_tokens
# The gradient that arrives is already complete.
from gpt_numpy.layers import Pair


def leave(tp):
    return Pair(tp.reduce_scatter, lambda dy: dy)
