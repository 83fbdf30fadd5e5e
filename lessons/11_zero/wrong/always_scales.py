# caught by: check_a_short_gradient_stays
# Clipping makes the norm max_norm.
import numpy as np


def clip_shards(shards, max_norm, dp):
    square = sum((g * g).sum() for g in shards.values())
    norm = float(np.sqrt(dp.all_reduce(square)))
    scale = max_norm / norm if norm else 1.0
    return {name: g * scale for name, g in shards.items()}, norm
