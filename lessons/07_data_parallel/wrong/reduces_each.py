# caught by: check_reduced_once
# Reducing each micro-batch's gradient gives the same sum.
import numpy as np


def accumulated_gradient(sum_grads, tokens, dp):
    total = int(dp.all_reduce(np.array(sum(tokens))))
    reduced = [dp.all_reduce(g) for g in sum_grads]
    return sum(reduced[1:], reduced[0]) / total
