# caught by: check_a_bucket_of_several_arrays
# The names come in the order in which shapes has them.
from math import prod

import numpy as np


def all_gather(shards, shapes, dp):
    table = dp.all_gather(np.concatenate(list(shards.values()))[None])  # [n, sum of k]
    whole, start = {}, 0
    for name, shape in shapes.items():
        if name in shards:
            end = start + shards[name].size
            whole[name] = table[:, start:end].reshape(-1)[: prod(shape)].reshape(shape)
            start = end
    return whole
