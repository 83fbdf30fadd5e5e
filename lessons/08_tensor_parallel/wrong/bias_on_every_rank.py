# caught by: check_bias_is_added_once
# A linear layer includes its bias, so each rank adds it.
def row_parallel_linear(x, w, b, tp):
    return tp.all_reduce(x @ w + b)
