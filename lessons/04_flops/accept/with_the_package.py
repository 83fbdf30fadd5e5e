# By counting each matmul with the package's own closed forms.
from gpt_numpy import flops


def linear_flops(n, d_in, d_out):
    return (
        flops.linear_flops(n, d_in, d_out),
        flops.linear_flops(n, d_out, d_in) + flops.linear_flops(d_in, n, d_out),
    )


def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    config = flops.Config(n_embd, 1, n_layer, seq, n_vocab)
    return flops.training_flops(config, batch)


def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    needed = tokens_per_second * flops.palm_flops(n_params, n_layer, n_embd, seq)
    return flops.mfu(needed, 1.0, gpus, gpu.peak)
