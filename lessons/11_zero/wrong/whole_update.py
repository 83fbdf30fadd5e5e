# caught by: check_gradients_are_summed
# Everyone updates all weights, and keeps its shard of them.
def zero1_step(weights, grads, optimizer, lr, dp):
    new = {name: w.copy() for name, w in weights.items()}
    optimizer.step(new, {name: dp.all_reduce(g) for name, g in grads.items()}, lr)
    return new
