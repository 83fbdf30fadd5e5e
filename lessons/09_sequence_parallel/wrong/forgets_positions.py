# caught by: check_all_that_is_whole_is_summed
# Embeddings are split by rows, both of them.
SPLIT = ("c_attn.weight", "c_attn.bias", "c_fc.weight", "c_fc.bias", "c_proj.weight", "wte.weight")


def reduce_partial(grads, tp):
    def whole(name):
        return not name.endswith((*SPLIT, "wpe.weight"))

    return {name: tp.all_reduce(g) if whole(name) else g for name, g in grads.items()}
