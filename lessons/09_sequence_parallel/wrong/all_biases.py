# caught by: check_what_is_split_stays
# Biases and norms are vectors, and vectors are whole on every rank.
def reduce_partial(grads, tp):
    def whole(name):
        return grads[name].ndim == 1 or name == "wpe.weight"

    return {name: tp.all_reduce(g) if whole(name) else g for name, g in grads.items()}
