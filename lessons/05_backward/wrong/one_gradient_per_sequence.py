# caught by: check_unequal_sizes
# matmul knows what to do with the batch.
def linear_backward(x, w, dy):
    return dy @ w.T, {"w": x.swapaxes(1, 2) @ dy, "b": dy.sum(axis=0)}
