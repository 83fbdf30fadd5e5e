# caught by: check_rows_of_megatron_lm
# FLOPs of a step are 6 N tokens, with the 12 L h^2 parameters of the layers.
def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    tokens = global_batch * n_ctx
    return 6 * 12 * n_layer * n_embd**2 * tokens / (seconds * n_gpus * peak)
