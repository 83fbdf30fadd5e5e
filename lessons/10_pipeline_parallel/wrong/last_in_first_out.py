# caught by: check_first_stage
# The backward undoes the forward, so the last forward comes back first.
def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    n, m = min(micro_batches, pp - 1 - stage), micro_batches
    actions, held = [("F", i, 0) for i in range(n)], list(range(n))
    for i in range(n, m):
        held.append(i)
        actions += [("F", i, 0), ("B", held.pop(), 0)]
    return actions + [("B", held.pop(), 0) for _ in range(n)]
