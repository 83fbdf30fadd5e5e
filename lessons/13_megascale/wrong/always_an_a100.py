# caught by: check_long_sequences_and_other_gpus
# Everyone trains on A100, and they have 312 TFLOP/s.
def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    per_token = n_layer * (24 * n_embd**2 + 4 * n_ctx * n_embd) + 2 * n_embd * n_vocab
    return 3 * global_batch * n_ctx * per_token / (seconds * n_gpus * 312e12)
