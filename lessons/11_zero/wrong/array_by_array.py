# caught by: check_several_arrays_have_one_norm
# Every array is clipped to max_norm.
import numpy as np


def clip_shards(shards, max_norm, dp):
    squares = {name: float(dp.all_reduce((g * g).sum())) for name, g in shards.items()}
    norms = {name: square**0.5 for name, square in squares.items()}
    scales = {name: max_norm / max(norm, max_norm) for name, norm in norms.items()}
    norm = float(np.sqrt(sum(squares.values())))
    return {name: g * scales[name] for name, g in shards.items()}, norm
