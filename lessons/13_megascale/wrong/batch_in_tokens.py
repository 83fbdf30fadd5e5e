# caught by: check_rows_of_the_recomputation_paper
# The batch size is a number of tokens.
def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    bracket = 1 + n_ctx / (6 * n_embd) + n_vocab / (12 * n_embd * n_layer)
    return 72 * global_batch * n_layer * n_embd**2 * bracket / (seconds * n_gpus * peak)
