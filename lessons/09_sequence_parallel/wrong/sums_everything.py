# caught by: check_what_is_split_stays
# Summing over the tp group is always safe.
def reduce_partial(grads, tp):
    return {name: tp.all_reduce(g) for name, g in grads.items()}
