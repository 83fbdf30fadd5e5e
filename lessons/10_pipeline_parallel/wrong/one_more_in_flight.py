# caught by: check_runs_to_the_end
# p - stage forwards, and then backward and forward in turn; the last stage needs a start, too.
def one_f_one_b(stage, pp, micro_batches, virtual_stages=1):
    n, m = min(micro_batches, pp - stage), micro_batches
    actions = [("F", i, 0) for i in range(n)]
    for i in range(m - n):
        actions += [("F", n + i, 0), ("B", i, 0)]
    return actions + [("B", i, 0) for i in range(m - n, m)]
