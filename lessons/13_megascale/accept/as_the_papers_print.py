# The papers' own forms: the bracket of equation 7, efficiency as a ratio of throughputs, and the
# bubble as one minus the busy share, all in another order of operations.
def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    bracket = 1 + n_ctx / (6 * n_embd) + n_vocab / (12 * n_embd * n_layer)
    flops = 72.0 * global_batch * n_layer * n_ctx * n_embd**2 * bracket
    return flops / seconds / n_gpus / peak


def scaling_efficiency(n0, t0, n, t):
    per_gpu = [1 / seconds / gpus for gpus, seconds in ((n0, t0), (n, t))]
    return per_gpu[1] / per_gpu[0]


def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    m = global_batch * tp * pp / n_gpus / micro_batch
    return 1 - m / (m + (pp - 1) / virtual_stages)
