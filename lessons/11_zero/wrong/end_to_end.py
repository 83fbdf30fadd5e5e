# caught by: check_a_bucket_of_several_arrays
# What is gathered is the bucket again: cut it by names.
import numpy as np


def all_gather(shards, shapes, dp):
    flat = dp.all_gather(np.concatenate(list(shards.values())))
    whole, start = {}, 0
    for name, shard in shards.items():
        size = int(np.prod(shapes[name]))
        whole[name] = flat[start : start + size].reshape(shapes[name])
        start += shard.size * dp.size
    return whole
