# caught by: check_one_rank
# The norm of everything is the sum of the norms.
import numpy as np


def reduce_and_clip(grads, max_norm, dp):
    summed = {name: dp.all_reduce(g) for name, g in grads.items()}
    norm = sum(np.sqrt((g * g).sum()) for g in summed.values())
    return {name: g / np.maximum(norm / max_norm, 1) for name, g in summed.items()}
