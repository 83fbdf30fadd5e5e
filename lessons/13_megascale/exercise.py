"""Lesson 13: read a row of a paper's table.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 13` says what passes.
Hints are at the end.
"""


def scaling_efficiency(n0, t0, n, t):
    """Strong scaling efficiency: which part of the hoped-for speed-up more GPUs reach.

    Both runs take a step of the same global batch: one on n0 GPUs in t0 seconds, one on n GPUs in
    t seconds. With n = 2 n0 GPUs one hopes for half the time; that is an efficiency of 1.
    -> a fraction, not per cent. It may be above 1.

    >>> scaling_efficiency(1, 12.0, 4, 4.0)
    0.75
    """
    raise NotImplementedError("compare the speed-up with the factor of GPUs")


def bubble_of_row(global_batch, micro_batch, n_gpus, tp, pp, virtual_stages):
    """The share of a pipeline's time in which a stage is idle, from a published layout.

    Convention: idle time over the whole time, idle and busy, of filling, working and draining;
    stages are equal, and communication is free. What comes once a step does not count.
    global_batch, micro_batch: sequences; n_gpus = dp * pp * tp; virtual_stages: chunks of layers
    on each stage (1: not interleaved). All divide. -> a fraction, not per cent

    >>> bubble_of_row(16, 2, n_gpus=16, tp=2, pp=4, virtual_stages=1)
    0.42857142857142855
    """
    raise NotImplementedError("how many micro-batches go through each pipeline?")


def mfu_of_row(global_batch, n_ctx, n_layer, n_embd, n_vocab, seconds, n_gpus, peak):
    """The model FLOPs utilisation of a published training run, from its seconds per step.

    Convention (korthikanti-mfu): all matmuls of a step, forward and backward, and only matmuls; a
    multiply and an add are two FLOPs; the MLP is 4 n_embd wide; attention is over the whole square
    of n_ctx x n_ctx; logits are computed for every token; nothing is recomputed.
    global_batch: sequences in a step; n_ctx: tokens in each; seconds: of a step; n_gpus: of the
    whole run; peak: FLOP/s of one GPU -> a fraction, not per cent

    The row of the 175B model of arXiv 2205.05198, Table 5, printed as 51.4 %:

    >>> round(mfu_of_row(64, 2048, 96, 12288, 51200, 13.75, 64, 312e12), 4)
    0.5139
    """
    raise NotImplementedError("FLOPs of the model, over what the GPUs could have done meanwhile")


# Hints
#
# scaling_efficiency  How many times as fast did it get, on how many times as many GPUs? In
#                     GPU-seconds: what did a step cost before, and what after?
# bubble_of_row       Of n_gpus, how many make one pipeline? So how many pipelines share the batch?
#                     Lesson 10: a stage is busy for so many passes through a chunk, and misses
#                     pp - 1 of them.
# mfu_of_row          Lesson 4 has the FLOPs: 24 n_embd^2 a token in each block, 4 n_ctx n_embd for
#                     its scores and weighted values, 2 n_embd n_vocab for the logits; and what
#                     does the backward pass add?
