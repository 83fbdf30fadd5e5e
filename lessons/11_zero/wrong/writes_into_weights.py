# caught by: check_gradients_are_summed
# A row of the flattened weight is the shard.
import numpy as np


def zero1_step(weights, grads, optimizer, lr, dp):
    def cut(x):
        flat, rest = x.reshape(-1), -x.size % dp.size
        if rest:
            flat = np.concatenate([flat, np.zeros(rest, x.dtype, like=x)])
        return flat.reshape(dp.size, -1)

    mine = {name: cut(w)[dp.rank] for name, w in weights.items()}
    optimizer.step(mine, {name: dp.reduce_scatter(cut(g))[0] for name, g in grads.items()}, lr)
    return {
        name: dp.all_gather(mine[name])[: w.size].reshape(w.shape) for name, w in weights.items()
    }
