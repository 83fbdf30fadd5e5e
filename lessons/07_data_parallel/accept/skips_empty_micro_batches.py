# Micro-batches without tokens are left out: their gradient is 0.
import numpy as np


def accumulated_gradient(sum_grads, tokens, dp):
    own = np.zeros_like(sum_grads[0])
    for g, n in zip(sum_grads, tokens):
        if n:
            own = own + g
    return dp.all_reduce(own) / int(dp.all_reduce(np.array(sum(tokens))))
