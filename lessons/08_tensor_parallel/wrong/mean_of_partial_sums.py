# caught by: check_row_parallel_product
# What ranks have of the same thing is averaged.
def row_parallel_linear(x, w, b, tp):
    return tp.all_reduce(x @ w) / tp.size + b
