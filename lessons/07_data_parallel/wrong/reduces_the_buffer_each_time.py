# caught by: check_even_micro_batches
# Reducing after every micro-batch is only slower.
import numpy as np


def accumulated_gradient(sum_grads, tokens, dp):
    buffer = sum_grads[0] * 0
    for g in sum_grads:
        buffer = dp.all_reduce(buffer + g)
    return buffer / int(dp.all_reduce(np.array(sum(tokens))))
