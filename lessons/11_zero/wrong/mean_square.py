# caught by: check_two_shards
# The ranks share one norm: it is the root of their mean square.
import numpy as np


def clip_shards(shards, max_norm, dp):
    square = sum((g * g).sum() for g in shards.values())
    norm = float(np.sqrt(dp.all_reduce(square) / dp.size))
    scale = max_norm / max(norm, max_norm)
    return {name: g * scale for name, g in shards.items()}, norm
