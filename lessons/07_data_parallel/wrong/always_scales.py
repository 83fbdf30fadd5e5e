# caught by: check_small_gradient_is_untouched
# To clip is to normalise.
import numpy as np


def reduce_and_clip(grads, max_norm, dp):
    summed = {name: dp.all_reduce(g) for name, g in grads.items()}
    norm = np.sqrt(sum((g * g).sum() for g in summed.values()))
    return {name: g * (max_norm / norm) for name, g in summed.items()}
