# caught by: check_row_parallel_product
# Each rank has its part of the result.
def row_parallel_linear(x, w, b, tp):
    return x @ w + b
