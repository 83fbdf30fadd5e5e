# caught by: check_norms_are_summed
# Different tokens on different ranks is data parallelism, so average.
SPLIT = ("c_attn.weight", "c_attn.bias", "c_fc.weight", "c_fc.bias", "c_proj.weight", "wte.weight")


def reduce_partial(grads, tp):
    def whole(name):
        return not name.endswith(SPLIT)

    return {name: tp.all_reduce(g) / tp.size if whole(name) else g for name, g in grads.items()}
