# caught by: check_a_published_7b_row
# The largest number on the data sheet is the peak.
def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    per_token = 6 * n_params + 12 * n_layer * n_embd * seq
    return tokens_per_second * per_token / (gpus * (gpu.peak_sparse or gpu.peak))
