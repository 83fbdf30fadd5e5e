# caught by: check_two_shards
# The shards are mine, so I can scale them in place.
import numpy as np


def clip_shards(shards, max_norm, dp):
    norm = float(np.sqrt(dp.all_reduce(sum((g * g).sum() for g in shards.values()))))
    for g in shards.values():
        g *= max_norm / max(norm, max_norm)
    return shards, norm
