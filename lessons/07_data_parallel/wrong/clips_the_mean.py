# caught by: check_small_gradient_is_untouched
# Gradients of ranks are averaged.
import numpy as np


def clip(grads, max_norm):
    norm = np.sqrt(sum((g * g).sum() for g in grads.values()))
    return {name: g / np.maximum(norm / max_norm, 1) for name, g in grads.items()}


def reduce_and_clip(grads, max_norm, dp):
    return clip({name: dp.all_reduce(g) / dp.size for name, g in grads.items()}, max_norm)
