# Tuples will do for Actions; the order can be said by moments and sorted.
def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    if virtual_stages > 1:
        raise ValueError("use interleaved")
    warm_up, actions = min(pp - 1 - stage, micro_batches), []
    for i in range(micro_batches + warm_up):
        if i < micro_batches:
            actions.append(("F", i, 0))
        if i >= warm_up:
            actions.append(("B", i - warm_up, 0))
    return actions
