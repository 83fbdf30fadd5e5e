# caught by: check_row_parallel_product
# The sum is needed once, so rank 0 adds it up.
def row_parallel_linear(x, w, b, tp):
    total = tp.all_reduce(x @ w)
    return (total if tp.rank == 0 else x @ w) + b
