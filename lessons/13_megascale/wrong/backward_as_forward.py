# caught by: check_what_a_device_counts
# The backward pass mirrors the forward pass, so a step is two of them.
def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    per_token = n_layer * (24 * n_embd**2 + 4 * n_ctx * n_embd) + 2 * n_embd * n_vocab
    return 2 * global_batch * n_ctx * per_token / (seconds * n_gpus * peak)
