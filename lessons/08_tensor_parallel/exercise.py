"""Lesson 8: split a block's matrices, its embedding and its loss over the ranks of a group.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 8` says what passes.
`enter`, `leave`, `split` and `cross_entropy` are what the package itself trains with: in a
student's copy it takes yours. Hints are at the end.
"""

import numpy as np  # noqa: F401

TEACHES = {
    "enter": "gpt_numpy.parallel.tensor.enter",
    "leave": "gpt_numpy.parallel.tensor.leave",
    "split": "gpt_numpy.parallel.tensor.split",
    "cross_entropy": "gpt_numpy.parallel.tensor.cross_entropy",
}


def row_parallel_linear(x, w, b, tp):
    """y = x W + b, whole on every rank, where a rank has columns of x and the same rows of W.

    x: [n, k/tp]; w: [k/tp, m]; b: [m], whole on every rank; tp: the group (`rank`, `size`,
    `all_reduce`, ...) -> [n, m]. No more is sent than one all-reduce of [n, m] sends.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> xs = [np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])]
    >>> ws = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 1.0], [2.0, 0.0]])]
    >>> def program(rank):
    ...     r, put = rank.tp.rank, rank.device.put
    ...     return row_parallel_linear(put(xs[r]), put(ws[r]), put([10.0, 20.0]), rank.tp)
    >>> [y.numpy().tolist() for y in run(program, Mesh(tp=2))]
    [[[22.0, 25.0]], [[22.0, 25.0]]]
    """
    raise NotImplementedError("multiply the parts, sum over the ranks, add the bias once")


def mlp(x, a, b, dy, tp):
    """relu(x A) B and its backward pass, with A split by columns and B by rows.

    x: [n, d], whole on every rank; a: [d, f/tp]; b: [f/tp, d]; dy: [n, d], the gradient of y,
    whole on every rank -> y [n, d], dx [n, d], da [d, f/tp], db [f/tp, d]. y and dx are whole on
    every rank. One all-reduce of [n, d] in each direction is all that is sent.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> As = [np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[-1.0, 3.0], [1.0, 0.0]])]
    >>> Bs = [np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 2.0]])]
    >>> def program(rank):
    ...     r, put = rank.tp.rank, rank.device.put
    ...     y, dx, da, db = mlp(put([[1.0, -1.0]]), put(As[r]), put(Bs[r]), put([[1.0, 2.0]]),
    ...                         rank.tp)
    ...     return y.numpy().tolist(), dx.numpy().tolist()
    >>> run(program, Mesh(tp=2))
    [([[3.0, 7.0]], [[21.0, 4.0]]), ([[3.0, 7.0]], [[21.0, 4.0]])]
    """
    raise NotImplementedError("forward: two products, one sum over ranks; then back, the same way")


def enter(tp):
    """f of Megatron-LM: the Pair of what happens to x before matrices that are split by columns.

    Forward x is whole on every rank already; backward each rank has a partial sum of its gradient.
    tp: the group -> gpt_numpy.layers.Pair(forward, backward), two functions: [n, d] -> [n, d]

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):
    ...     x = rank.device.put([1.0 + rank.rank])
    ...     return enter(rank.tp).forward(x).numpy(), enter(rank.tp).backward(x).numpy()
    >>> [(y.tolist(), dy.tolist()) for y, dy in run(program, Mesh(tp=2))]
    [([1.0], [3.0]), ([2.0], [3.0])]
    """
    raise NotImplementedError("return a Pair: a function for each direction")


def leave(tp):
    """g of Megatron-LM: the Pair of what happens to y after matrices that are split by rows.

    Forward each rank has a partial sum of y; backward the gradient of y is whole on every rank.
    tp: the group -> gpt_numpy.layers.Pair(forward, backward), two functions: [n, d] -> [n, d]

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):
    ...     x = rank.device.put([1.0 + rank.rank])
    ...     return leave(rank.tp).forward(x).numpy(), leave(rank.tp).backward(x).numpy()
    >>> [(y.tolist(), dy.tolist()) for y, dy in run(program, Mesh(tp=2))]
    [([3.0], [1.0]), ([3.0], [2.0])]
    """
    raise NotImplementedError("return a Pair: a function for each direction")


def split(name, x, tp):
    """The parts of an array of the model for tp ranks, by its published name.

    name: "h.3.attn.c_attn.weight", say, where 3 is any block's number; x: a NumPy array;
    tp: how many ranks, a number -> a list of tp arrays. This is what ranks have of them:

        ....attn.c_attn.weight  [d, 3d] = [q | k | v]  their own heads' columns of q, of k and of
                                                       v, side by side again: [d, 3d/tp]
        ....attn.c_attn.bias    [3d]                   the same of it: [3d/tp]
        ....mlp.c_fc.weight     [d, 4d]                columns: [d, 4d/tp]
        ....mlp.c_fc.bias       [4d]                   [4d/tp]
        ....attn.c_proj.weight  [d, d]                 rows: [d/tp, d]
        ....mlp.c_proj.weight   [4d, d]                rows: [4d/tp, d]
        wte.weight              [v, d]                 rows, after rows of zeros have been added
                                                       at the end until v divides by tp
        all others                                     the whole of it, on each rank

    Rank 0 has the first heads, rank 1 the next ones, and so on. Sizes divide, but for v.

    >>> [part.tolist() for part in split("h.0.attn.c_attn.bias", np.arange(12), 2)]  # d = 4
    [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    """
    raise NotImplementedError("find out by the name how x is cut, and cut it")


def cross_entropy(logits, targets, total, tp, n_vocab):
    """The loss of logits that are split by vocabulary, and its backward pass.

    The loss is the sum of -log(probability of the target) over tokens with a target that is not
    negative, divided by `total`; other tokens have no loss and no gradient: any negative target,
    -1 or -100, counts as none. No rank ever sees all logits: a rank sends no more than three
    all-reduces of a number per token would.

    logits: [n, v/tp], on rank r columns r * v/tp, r * v/tp + 1, ... of all [n, v]. v is n_vocab
        rounded up to a multiple of tp: columns from n_vocab on are no tokens, and must not count.
        With n_vocab 5 and tp 4 they are one column of rank 2, and all that rank 3 has.
    targets: [n], whole on every rank; total: a number, perhaps a NumPy integer, of which
        dloss / total would be a float64; tp: the group
    -> loss [], the same on every rank, and `back`: back(dloss) -> dlogits [n, v/tp], of the dtype
    of the logits, 0 in columns that are no tokens. dloss is a number, nearly always 1.

    It may overwrite logits, and `back` is called once. It has to run on device arrays without
    numbers, too (lesson 6), so nothing may depend on a number that is read out of an array: no
    float(x), no boolean masks as indices, but np.where.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> logits = np.log([[1.0, 2.0, 3.0, 4.0]])  # of one token, whose target is 3
    >>> def program(rank):
    ...     mine = rank.device.put(np.split(logits, 2, axis=1)[rank.tp.rank])
    ...     loss, back = cross_entropy(mine, rank.device.put([3]), 1, rank.tp, n_vocab=4)
    ...     return float(loss.numpy().round(5)), back(1.0).numpy().round(3).tolist()
    >>> run(program, Mesh(tp=2))  # -log 0.4; probabilities, less 1 where the target is
    [(0.91629, [[0.1, 0.2]]), (0.91629, [[0.3, -0.6]])]
    """
    raise NotImplementedError("three numbers per token are reduced: max, sum, target's logit")


# Hints
#
# row_parallel_linear  What is the sum over ranks of x W + b, if every rank adds b before?
# mlp             The forward pass of one device, with one all-reduce added at the end. Then
#                 backward, again as on one device: of which of the three gradients has each rank
#                 only a part of the sum? relu is np.maximum(h, 0), and its slope h > 0.
# enter, leave    `from gpt_numpy.layers import Pair`, `from gpt_numpy.gpt2 import identity`.
#                 tp.all_reduce is a function from an array to an array.
# split           x.reshape(*x.shape[:-1], 3, -1) gives q, k and v an axis of their own.
#                 np.split cuts along any axis, np.pad adds zeros.
# cross_entropy   Look at layers.cross_entropy first. Of its three lines that look at a whole row,
#                 each needs the other ranks. tp.all_reduce(x, op="max") is the largest.
#                 A target lies in one rank's columns: what do the others add to the sum? They
#                 still have to index with something valid: np.where(here, row, 0).
#                 np.arange(n, like=targets) is an index array on the same device.
#                 What must a logit be, to add nothing to the sum of exponentials?
