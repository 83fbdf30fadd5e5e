# caught by: check_bias_is_added_once
# The bias belongs to rank 0: it adds it at the end.
def row_parallel_linear(x, w, b, tp):
    y = tp.all_reduce(x @ w)
    return y + b if tp.rank == 0 else y
