# caught by: check_even_micro_batches
# Gradients are cleared before each backward pass.
import numpy as np


def accumulated_gradient(sum_grads, tokens, dp):
    for g in sum_grads:
        buffer = g
    return dp.all_reduce(buffer) / int(dp.all_reduce(np.array(sum(tokens))))
