# caught by: check_uneven_micro_batches
# A rank divides by its own tokens, and ranks are averaged.
def accumulated_gradient(sum_grads, tokens, dp):
    own = sum(sum_grads[1:], sum_grads[0]) / max(1, sum(tokens))
    return dp.all_reduce(own) / dp.size
