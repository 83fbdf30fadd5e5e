# caught by: check_two_shards
# Every rank clips what it has.
import numpy as np


def clip_shards(shards, max_norm, dp):
    square = sum((g * g).sum() for g in shards.values())
    norm = float(np.sqrt(square))
    scale = max_norm / max(norm, max_norm)
    return {name: g * scale for name, g in shards.items()}, norm
