# caught by: check_one_all_reduce_is_sent
# To multiply by W a rank needs all of W.
def row_parallel_linear(x, w, b, tp):
    return tp.all_gather(x, axis=1) @ tp.all_gather(w) + b
