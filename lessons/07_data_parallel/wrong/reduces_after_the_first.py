# caught by: check_even_micro_batches
# One reduction per step is enough, at any micro-batch.
import numpy as np


def accumulated_gradient(sum_grads, tokens, dp):
    total = int(dp.all_reduce(np.array(sum(tokens))))
    buffer = dp.all_reduce(sum_grads[0])
    return sum(sum_grads[1:], buffer) / total
