"""Lesson 9: split the tokens between the split layers, and count what is held.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 9` says what passes.
`enter`, `leave` and `reduce_partial` are what the package itself trains with: in a student's copy
it takes yours. Hints are at the end.
"""

import numpy as np  # noqa: F401

TEACHES = {
    "enter": "gpt_numpy.parallel.sequence.enter",
    "leave": "gpt_numpy.parallel.sequence.leave",
    "reduce_partial": "gpt_numpy.parallel.sequence.reduce_partial",
}


def mlp(x, a, b, dy, tp):
    """relu(x A) B and its backward pass, where a rank has 1/tp of the tokens and of A and B.

    x: [n/tp, d], the rank's tokens; a: [d, f/tp], columns of A; b: [f/tp, d], rows of B;
    dy: [n/tp, d], the gradient of y; tp: the group -> y [n/tp, d], dx [n/tp, d], da [d, f/tp],
    db [f/tp, d]. Rank 0 has the first tokens. Activations are sent, and weights never are.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> xs, dys = [[[1.0, -1.0]], [[2.0, 1.0]]], [[[1.0, 2.0]], [[0.0, 1.0]]]
    >>> As = [[[1.0, 2.0], [0.0, 1.0]], [[-1.0, 3.0], [1.0, 0.0]]]
    >>> Bs = [[[1.0, 0.0], [2.0, 1.0]], [[1.0, 1.0], [0.0, 2.0]]]
    >>> def program(rank):
    ...     r, put = rank.tp.rank, rank.device.put
    ...     y, dx, da, db = mlp(put(xs[r]), put(As[r]), put(Bs[r]), put(dys[r]), rank.tp)
    ...     return y.numpy().tolist(), dx.numpy().tolist()
    >>> run(program, Mesh(tp=2))
    [([[3.0, 7.0]], [[21.0, 4.0]]), ([[12.0, 17.0]], [[8.0, 1.0]])]
    """
    raise NotImplementedError("gather tokens, two products, reduce-scatter; backward the same way")


def enter(tp):
    """The Pair of what happens to x, split by tokens, before matrices that are split by columns.

    tp: the group (`all_gather`, `reduce_scatter`, `all_reduce`, ...)
    -> gpt_numpy.layers.Pair(forward, backward):
        forward   x [n/tp, d], of the rank's own tokens -> [n, d], of all tokens
        backward  the gradient of that, [n, d], a partial sum -> the gradient of x, [n/tp, d]

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):
    ...     x, dx = rank.device.put([1.0 + rank.rank]), rank.device.put([3.0, 4.0])
    ...     return enter(rank.tp).forward(x).numpy(), enter(rank.tp).backward(dx).numpy()
    >>> [(y.tolist(), dy.tolist()) for y, dy in run(program, Mesh(tp=2))]
    [([1.0, 2.0], [6.0]), ([1.0, 2.0], [8.0])]
    """
    raise NotImplementedError("return a Pair: a function for each direction")


def leave(tp):
    """The Pair of what happens to y after matrices that are split by rows.

    tp: the group -> gpt_numpy.layers.Pair(forward, backward):
        forward   y [n, d], a partial sum -> [n/tp, d], the whole sum of the rank's own tokens
        backward  the gradient of that, [n/tp, d] -> the gradient of y, [n, d]

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):
    ...     y, dy = rank.device.put([3.0, 4.0]), rank.device.put([1.0 + rank.rank])
    ...     return leave(rank.tp).forward(y).numpy(), leave(rank.tp).backward(dy).numpy()
    >>> [(y.tolist(), dy.tolist()) for y, dy in run(program, Mesh(tp=2))]
    [([6.0], [1.0, 2.0]), ([8.0], [1.0, 2.0])]
    """
    raise NotImplementedError("return a Pair: a function for each direction")


def reduce_partial(grads, tp):
    """With sequence parallelism: complete the gradients of what every rank has the whole of.

    Losses are sums over tokens (divided by the same number on every rank). A layer norm's gain is
    on every rank, but a rank has used it on its own tokens alone, and so has only their part of
    the gradient. Of the split arrays a rank has the gradient of its part, from all tokens. Split
    are (lesson 8) these, of any block, and wte; all other arrays are whole:

        attn.c_attn.weight, attn.c_attn.bias, mlp.c_fc.weight, mlp.c_fc.bias,
        attn.c_proj.weight, mlp.c_proj.weight, wte.weight

    grads: {published name, such as "h.3.ln_1.weight": array}, perhaps empty; the same names in
    the same order on all ranks -> {the same names: arrays of the same shapes}

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):
    ...     grads = {"ln_f.bias": [1.0 + 2 * rank.rank], "h.0.mlp.c_fc.bias": [4.0 + rank.rank]}
    ...     grads = {name: rank.device.put(g) for name, g in grads.items()}
    ...     return {name: g.numpy().tolist() for name, g in reduce_partial(grads, rank.tp).items()}
    >>> for grads in run(program, Mesh(tp=2)):
    ...     print(grads)
    {'ln_f.bias': [4.0], 'h.0.mlp.c_fc.bias': [4.0]}
    {'ln_f.bias': [4.0], 'h.0.mlp.c_fc.bias': [5.0]}
    """
    raise NotImplementedError("which of them are whole on every rank? Sum those over tp")


def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none"
):
    """Bytes that a rank holds of one block for its backward pass: arXiv 2205.05198, Table 2.

    With s = seq, b = micro_batch, h = n_embd, a = n_head it is 34sbh + 5as²b bytes on one rank:
    elements of 2 bytes, dropout masks of 1. Of the 34sbh, 24sbh belong to layers that tensor
    parallelism splits, and so do the 5as²b: queries, keys and values, scores, hidden units. The
    other 10sbh, what layer norms, split layers and dropout between them read, are whole on every
    rank, unless sequence parallelism splits them, too.

    recompute: "none"; "selective", which does not hold the 5as²b of attention's scores, but
    computes them again; or "full", which holds the block's input alone, 2sbh, whole on every rank
    like the other activations outside of the split layers. -> a number of bytes

    >>> activation_bytes(seq=2, micro_batch=1, n_embd=4, n_head=2, tp=2)
    196
    """
    raise NotImplementedError("what does tp split, what sequence parallelism, what is dropped?")


def merge_attention(out1, lse1, out2, lse2):
    """Attention over two blocks of keys, from what it gave for each block alone.

    For a query, with the scores z_j of a block's keys and their values v_j,
    out = sum of exp(z_j) v_j / sum of exp(z_j), and lse = log(sum of exp(z_j)).
    A block all of whose keys are hidden from a query has out 0 and lse -inf; never both blocks.

    out1, out2: [..., e], of e numbers for each query; lse1, lse2: [...]; NumPy arrays
    -> (out [..., e], lse [...]), as if it were one block

    >>> first, second = np.array([[4.0]]), np.array([[8.0]])  # one query, values of one number
    >>> out, lse = merge_attention(first, np.log([1.0]), second, np.log([3.0]))
    >>> out.round(4).tolist(), lse.round(4).tolist()  # a score of 0, and one of log 3
    ([[7.0]], [1.3863])
    """
    raise NotImplementedError("how much of all exponentials is in each block?")


# Hints
#
# mlp             A product by A needs whole rows of x: all tokens. B gives partial sums of all
#                 tokens. Backward begins with dy, of the rank's tokens: what does B's gradient
#                 need? The conjugate of an all-gather is a reduce-scatter.
# enter, leave    One function of the group for each direction; tokens are axis 0, the default.
# reduce_partial  name.endswith, or a look at what is in it. Several arrays can travel as one:
#                 np.concatenate of x.reshape(-1). One all-reduce for each is right, too.
# activation_bytes  Two sums: what is divided by tp in any case, and what only by sequence
#                 parallelism. Then ask of each what recomputation leaves of it.
# merge_attention exp(lse) is how much a block weighs. Scores may be large: subtract the larger
#                 lse before any exponential. np.logaddexp exists. lse[..., None] has an axis more.
