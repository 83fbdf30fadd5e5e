# caught by: check_gradients_are_summed
# Adam's rate is 0.1 here, as in the example.
import numpy as np


def zero1_step(weights, grads, optimizer, lr, dp):
    def cut(x):
        flat = np.concatenate([x.reshape(-1), np.zeros(-x.size % dp.size, x.dtype, like=x)])
        return flat.reshape(dp.size, -1)

    mine = {name: cut(w)[dp.rank].copy() for name, w in weights.items()}
    optimizer.step(mine, {name: dp.reduce_scatter(cut(g))[0] for name, g in grads.items()}, 0.1)
    return {
        name: dp.all_gather(mine[name])[: w.size].reshape(w.shape) for name, w in weights.items()
    }
