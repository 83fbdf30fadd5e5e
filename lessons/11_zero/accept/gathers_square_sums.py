# Each rank tells all others its sum of squares; the norm is a number on the device.
import numpy as np


def clip_shards(shards, max_norm, dp):
    square = sum([(g * g).sum(dtype=np.float64) for g in shards.values()])
    norm = np.sqrt(dp.all_gather(square.reshape(1)).sum())
    if norm <= max_norm:
        return dict(shards), norm
    return {name: (g * (max_norm / norm)).astype(g.dtype) for name, g in shards.items()}, norm
