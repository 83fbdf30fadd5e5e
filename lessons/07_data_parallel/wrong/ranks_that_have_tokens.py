# caught by: check_uneven_tokens
# Only empty ranks are a problem: leave them out of the average.
def dp_mean_gradient(local_mean_grads, n_tokens):
    busy = [g for g, n in zip(local_mean_grads, n_tokens) if n]
    return sum(busy) / len(busy)
