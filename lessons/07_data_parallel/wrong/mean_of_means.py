# caught by: check_uneven_tokens
# The average of the local averages is the average.
def dp_mean_gradient(local_mean_grads, n_tokens):
    return sum(local_mean_grads) / len(local_mean_grads)
