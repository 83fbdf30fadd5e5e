# caught by: check_parts_that_cancel_out
# If no rank's part is longer than its share, the sum is not too long.
import numpy as np


def clip(grads, max_norm):
    norm = np.sqrt(sum((g * g).sum() for g in grads.values()))
    return {name: g / np.maximum(norm / max_norm, 1) for name, g in grads.items()}


def reduce_and_clip(grads, max_norm, dp):
    return {name: dp.all_reduce(g) for name, g in clip(grads, max_norm / dp.size).items()}
