# caught by: check_long_sequences_are_mostly_attention
# Throughput is what one GPU does, so the number of GPUs does not matter.
def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    per_token = 6 * n_params + 12 * n_layer * n_embd * seq
    return tokens_per_second * per_token / gpu.peak
