# caught by: check_padding_is_cut_off
# The numbers are at the end, the padding comes before them.
import numpy as np


def all_gather(shards, shapes, dp):
    table = dp.all_gather(np.concatenate(list(shards.values()))[None])
    whole, start = {}, 0
    for name, shard in shards.items():
        flat = table[:, start : start + shard.size].reshape(-1)
        start += shard.size
        whole[name] = flat[flat.size - int(np.prod(shapes[name])) :].reshape(shapes[name])
    return whole
