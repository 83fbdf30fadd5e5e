# caught by: check_one_message_and_its_bytes
# Everyone puts its shard among zeros, and an all-reduce makes the whole.
import numpy as np


def all_gather(shards, shapes, dp):
    row = np.concatenate(list(shards.values()))[None]
    rows = [row if i == dp.rank else np.zeros_like(row) for i in range(dp.size)]
    table = dp.all_reduce(np.concatenate(rows))
    whole, start = {}, 0
    for name, shard in shards.items():
        flat = table[:, start : start + shard.size].reshape(-1)
        start += shard.size
        whole[name] = flat[: int(np.prod(shapes[name]))].reshape(shapes[name])
    return whole
