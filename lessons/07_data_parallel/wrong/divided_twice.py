# caught by: check_rank_without_tokens
# After weighting by tokens there is still the division by the number of ranks.
def dp_mean_gradient(local_mean_grads, n_tokens):
    weighted = sum(g * n for g, n in zip(local_mean_grads, n_tokens))
    return weighted / sum(n_tokens) / len(n_tokens)
