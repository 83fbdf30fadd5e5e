# caught by: check_a_few_numbers_are_sent
# The norm of a gradient needs the gradient.
import numpy as np


def clip_shards(shards, max_norm, dp):
    whole = dp.all_gather(np.concatenate(list(shards.values())))
    norm = float(np.sqrt((whole * whole).sum()))
    return {name: g * (max_norm / max(norm, max_norm)) for name, g in shards.items()}, norm
