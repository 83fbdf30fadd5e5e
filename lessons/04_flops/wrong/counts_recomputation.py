# caught by: check_a_published_70b_row_with_recomputation
# With activation checkpointing the forward pass runs twice, so it is 8N.
def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    per_token = 8 * n_params + 16 * n_layer * n_embd * seq
    return tokens_per_second * per_token / (gpus * gpu.peak)
