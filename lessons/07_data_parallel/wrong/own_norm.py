# caught by: check_two_ranks
# The norm can be taken before the reduction, if one scales after it.
import numpy as np


def reduce_and_clip(grads, max_norm, dp):
    norm = np.sqrt(sum((g * g).sum() for g in grads.values()))
    return {name: dp.all_reduce(g) / np.maximum(norm / max_norm, 1) for name, g in grads.items()}
