"""Lesson 13: the answers."""


def scaling_efficiency(n0, t0, n, t):
    return (n0 * t0) / (n * t)


def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    dp = n_gpus // (tp * pp)
    busy = global_batch // dp // micro_batch * virtual_stages
    return (pp - 1) / (busy + pp - 1)


def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    per_token = n_layer * (24 * n_embd**2 + 4 * n_ctx * n_embd) + 2 * n_embd * n_vocab
    return 3 * global_batch * n_ctx * per_token / (seconds * n_gpus * peak)
