# By the package's closed forms, and the MFU from its parts.
from gpt_numpy import flops


def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    config = flops.Config(n_embd, 1, n_layer, n_ctx, n_vocab)
    return flops.mfu(flops.training_flops(config, global_batch), seconds, n_gpus, peak)


def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    dp = n_gpus / tp / pp
    return flops.bubble(pp, global_batch / dp / micro_batch, virtual_stages, of="total")


def scaling_efficiency(n0, t0, n, t):
    # At the same FLOPs it is the ratio of the MFUs.
    return flops.mfu(1e18, t, n, 1e12) / flops.mfu(1e18, t0, n0, 1e12)
