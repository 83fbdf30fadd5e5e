# caught by: check_all_that_is_whole_is_summed
# It is the layer norms that each rank has whole.
def reduce_partial(grads, tp):
    return {name: tp.all_reduce(g) if "ln_" in name else g for name, g in grads.items()}
