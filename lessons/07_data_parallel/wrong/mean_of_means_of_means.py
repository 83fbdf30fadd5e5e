# caught by: check_uneven_micro_batches
# Average the micro-batch means, then the ranks.
def accumulated_gradient(sum_grads, tokens, dp):
    means = [g / max(1, n) for g, n in zip(sum_grads, tokens)]
    own = sum(means[1:], means[0]) / len(means)
    return dp.all_reduce(own) / dp.size
