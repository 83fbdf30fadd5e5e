# caught by: check_any_gpu_has_its_own_peak
# Half of the sparse peak is the dense one, on every GPU.
def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    per_token = 6 * n_params + 12 * n_layer * n_embd * seq
    return tokens_per_second * per_token / (gpus * (gpu.peak_sparse or 2 * 312e12) / 2)
