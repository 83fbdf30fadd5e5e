# caught by: check_two_shards
# Norms add up.
import numpy as np


def clip_shards(shards, max_norm, dp):
    square = sum((g * g).sum() for g in shards.values())
    norm = float(dp.all_reduce(np.sqrt(square)))
    scale = max_norm / max(norm, max_norm)
    return {name: g * scale for name, g in shards.items()}, norm
