# caught by: check_even_micro_batches
# The first gradient is a good place for the sum.
import numpy as np


def accumulated_gradient(sum_grads, tokens, dp):
    own = sum_grads[0]
    for g in sum_grads[1:]:
        own += g
    return dp.all_reduce(own) / int(dp.all_reduce(np.array(sum(tokens))))
