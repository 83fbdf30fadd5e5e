# caught by: check_even_tokens
# An all-reduce adds, so gradients are added.
def dp_mean_gradient(local_mean_grads, n_tokens):
    return sum(local_mean_grads)
