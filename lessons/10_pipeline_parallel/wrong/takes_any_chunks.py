# caught by: check_several_chunks_are_refused
# The parameter is not needed, so it may be anything.
def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    n, m = min(micro_batches, pp - 1 - stage), micro_batches
    actions = [("F", i, 0) for i in range(n)]
    for i in range(m - n):
        actions += [("F", n + i, 0), ("B", i, 0)]
    return actions + [("B", i, 0) for i in range(m - n, m)]
