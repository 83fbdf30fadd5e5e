# caught by: check_fewer_micro_batches_than_stages
# The warm-up is as long as the pipeline, there are always enough micro-batches.
def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    n, m = pp - 1 - stage, micro_batches
    actions = [("F", i, 0) for i in range(n)]
    for i in range(m - n):
        actions += [("F", n + i, 0), ("B", i, 0)]
    return actions + [("B", i, 0) for i in range(max(0, m - n), m)]
