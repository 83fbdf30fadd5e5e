# caught by: check_two_ranks
# Clipping is per tensor.
import numpy as np


def clip(grads, max_norm):
    norm = np.sqrt(sum((g * g).sum() for g in grads.values()))
    return {name: g / np.maximum(norm / max_norm, 1) for name, g in grads.items()}


def reduce_and_clip(grads, max_norm, dp):
    return {name: clip({name: dp.all_reduce(g)}, max_norm)[name] for name, g in grads.items()}
