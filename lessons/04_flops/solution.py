"""Lesson 4: the answers."""


def linear_flops(n, d_in, d_out):
    forward = 2 * n * d_in * d_out
    return forward, 2 * forward  # backward: dy @ w.T and x.T @ dy


def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    n = batch * seq
    matrices = 2 * n * 12 * n_embd**2  # c_attn 3, c_proj 1, c_fc 4, c_proj 4
    attention = 2 * 2 * n * seq * n_embd  # scores, values
    head = 2 * n * n_embd * n_vocab
    return 3 * (n_layer * (matrices + attention) + head)


def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    per_token = 6 * n_params + 12 * n_layer * n_embd * seq
    return tokens_per_second * per_token / (gpus * gpu.peak)
