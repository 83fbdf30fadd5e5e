# caught by: check_rows_of_megascale
# A causal mask hides half of attention, and that half is not needed.
def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    per_token = n_layer * (24 * n_embd**2 + 2 * (n_ctx + 1) * n_embd) + 2 * n_embd * n_vocab
    return 3 * global_batch * n_ctx * per_token / (seconds * n_gpus * peak)
