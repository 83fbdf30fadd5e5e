"""Lesson 4: count FLOPs, and say what share of the hardware they keep busy.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 4` says what passes.
Hints are at the end. Everywhere a multiply and an add are two FLOPs, and only matmuls count.
"""

from gpt_numpy.hardware import GPUS  # noqa: F401


def linear_flops(n, d_in, d_out):
    """FLOPs of y = x @ w, and those of its backward pass.

    Going backward, the gradients of both x and w are computed; nothing is recomputed.
    x: [n, d_in], w: [d_in, d_out] -> a tuple (forward, backward)

    >>> linear_flops(4, 3, 5)
    (120, 240)
    """
    raise NotImplementedError("count the products' multiplies and adds, forward and backward")


def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    """FLOPs of a training step of a GPT, forward and backward, on `batch` sequences.

    Conventions: the MLP is 4 n_embd wide; attention is over the whole square of seq x seq (a
    causal mask does not halve it); logits are computed for every token; looking up an embedding
    takes no FLOPs; nothing is recomputed.

    >>> model_flops(batch=1, seq=2, n_layer=1, n_embd=2, n_vocab=3)
    744
    """
    raise NotImplementedError("add up the matmuls of the blocks and the head, then the backward")


def mfu(tokens_per_second, n_params, n_layer, n_embd, seq, gpus, gpu):
    """Model FLOPs utilisation of a training job: a fraction, not per cent.

    Convention: PaLM's, 6 n_params + 12 n_layer n_embd seq FLOPs for each token, which is what the
    model needs, whatever the program recomputes. The peak is that of dense matrices.
    tokens_per_second: of the whole job; gpus: how many; gpu: which, of hardware.GPUS:
    gpu.peak and gpu.peak_sparse are FLOP/s of one

    A row that MosaicML published, 45.71 %:

    >>> round(mfu(1_340_830, 6_658_859_008, 32, 4096, 2048, 128, GPUS["h100"]), 4)
    0.4571
    """
    raise NotImplementedError("FLOP/s that the model needs, over FLOP/s that the GPUs could do")


# Hints
#
# linear_flops  Each of the n * d_out numbers in y is a sum of d_in products. How many FLOPs is
#               dx = dy @ w.T, and how many is dw = x.T @ dy?
# model_flops   A block has six matmuls for each token: c_attn [h, 3h], c_proj [h, h], c_fc
#               [h, 4h], c_proj [4h, h], and two without parameters: every query with every key,
#               and every weight with every value. The head is one more, [h, v].
# mfu           Which of the two peaks can a GPT reach? What would change in this figure if the
#               program recomputed everything twice, at the same tokens per second?
