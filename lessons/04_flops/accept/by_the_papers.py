# The papers' formulas as they are printed, in floating point, and their order of division.
def linear_flops(n, d_in, d_out):
    return [2.0 * n * d_in * d_out, 4.0 * n * d_in * d_out]


def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    vocabulary = 6 * batch * seq * n_embd * n_vocab
    return 72 * batch * seq * n_layer * n_embd**2 * (1 + seq / (6 * n_embd)) + vocabulary


def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    per_gpu = tokens_per_second / gpus
    return per_gpu * 6 * (n_params + 2 * n_layer * n_embd * seq) / gpu.peak
