"""Lesson 7: add up what the ranks of a data-parallel group have learnt, each token once.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 7` says what passes.
`accumulate` and `all_reduce` are what the package itself trains with: in a student's copy it
takes yours. Hints are at the end.
"""

import numpy as np  # noqa: F401

TEACHES = {
    "accumulate": "gpt_numpy.parallel.data.accumulate",
    "all_reduce": "gpt_numpy.parallel.data.all_reduce",
}


def dp_mean_gradient(local_mean_grads, n_tokens):
    """The gradient of the mean loss over all tokens of all ranks.

    Given is each rank's gradient of the mean loss over its *own* tokens.
    local_mean_grads: a list of n arrays [d], one of each rank, 0 of a rank without tokens
    n_tokens: a list of n whole numbers, how many tokens each rank has; not all are 0 -> [d]

    >>> dp_mean_gradient([np.array([1.0]), np.array([5.0])], [3, 1]).tolist()
    [2.0]
    """
    raise NotImplementedError("one mean over all tokens, wherever they are")


def accumulate(sums, grads):
    """Add gradients to sums, in place.

    sums, grads: {name: array}, two arrays of a name have one shape. A name that sums has not yet
    is put there, and its array is taken as it is, without a copy. An array that is in sums stays
    there, the same one, and has the sum afterwards: no memory is taken for another. grads may
    lack some of the names in sums. Arrays are NumPy's or a device's. Nothing is returned.

    >>> sums = {"w": np.array([1.0, 2.0])}
    >>> accumulate(sums, {"w": np.array([10.0, 20.0]), "b": np.array([5.0])})
    >>> {name: a.tolist() for name, a in sums.items()}
    {'w': [11.0, 22.0], 'b': [5.0]}
    """
    raise NotImplementedError("add what is there already, take in what is not")


def all_reduce(grads, dp):
    """Start the sum over ranks of a bucket of gradients, as one message, and do not wait for it.

    grads: {name: array}, of different shapes, but all ranks have the same names and shapes in the
    same order; at least one. dp: the group (`rank`, `size`, `all_reduce`). Exactly one
    dp.all_reduce, with async_op=True, of all arrays packed into a single flat one, is started
    before all_reduce returns. grads stay as they are.
    -> a function without arguments, which is called once: it waits for the sum, and returns
    {name: array}, of the same names, shapes and dtype

    >>> from gpt_numpy.mesh import Mesh, run
    >>> def program(rank):
    ...     grads = {"w": rank.device.put([[1.0], [2.0]]), "b": rank.device.put([10.0])}
    ...     wait = all_reduce(grads, rank.dp)  # a backward pass could go on here
    ...     return {name: g.numpy().tolist() for name, g in wait().items()}
    >>> run(program, Mesh(dp=3))[2]
    {'w': [[3.0], [6.0]], 'b': [30.0]}
    """
    raise NotImplementedError("pack, start the reduction, return what waits and unpacks")


def accumulated_gradient(sum_grads, tokens, dp):
    """The gradient of the mean loss over all tokens of all micro-batches on all ranks.

    Every rank of the group dp runs this, with its own micro-batches.
    sum_grads: a list of m arrays [d], gradients of the loss *summed* over a micro-batch's tokens
    tokens: a list of m whole numbers, how many tokens each of them has; some may be 0, and then
        that gradient is 0, but not all
    dp: the group (`rank`, `size`, `all_reduce`), which reduces NumPy arrays, too
    -> [d] of the same dtype, whole on every rank. What is sent is one all-reduce of [d] and one
    of a number, however many micro-batches there are. sum_grads stay as they are.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> sum_grads, tokens = [[6.0, 2.0], [4.0, 9.0]], [[3, 1], [1, 3]]
    >>> def program(rank):
    ...     mine = [rank.device.put([g]) for g in sum_grads[rank.rank]]
    ...     return accumulated_gradient(mine, tokens[rank.rank], rank.dp).numpy().tolist()
    >>> run(program, Mesh(dp=2))  # 21 / 8
    [[2.625], [2.625]]
    """
    raise NotImplementedError("add up at home, reduce once, divide by the count of all tokens")


def reduce_and_clip(grads, max_norm, dp):
    """The sum of gradients over the ranks, made shorter if it is longer than max_norm.

    Every rank of the group dp runs this. Its gradients are of its own tokens, and are divided by
    the count of all ranks' tokens already: the ranks' sum is the gradient. If the norm of that
    sum, the root of the sum of squares over all its arrays together, is more than max_norm, all of
    it is multiplied by max_norm / norm; if not, it stays what it is, also where it is 0.
    grads: {name: array}, of different shapes, the same names and shapes on all ranks
    max_norm: a number above 0; dp: the group (`rank`, `size`, `all_reduce`)
    -> {name: array}, the same on every rank. grads stay as they are. What is sent is one
    all-reduce of each array, or one of all of them.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> a, b = [[3.0, 0.0], [0.0, 0.0]], [[0.0], [4.0]]  # on ranks 0 and 1
    >>> def program(rank):
    ...     grads = {"a": rank.device.put(a[rank.rank]), "b": rank.device.put(b[rank.rank])}
    ...     clipped = reduce_and_clip(grads, 1.0, rank.dp)  # the sum is [3, 0], [4]: its norm is 5
    ...     return {name: g.numpy().round(9).tolist() for name, g in clipped.items()}
    >>> run(program, Mesh(dp=2))[1]
    {'a': [0.6, 0.0], 'b': [0.8]}
    """
    raise NotImplementedError("reduce first, then one norm, one factor")


# Hints
#
# dp_mean_gradient  What is a mean times its count? Do the sums add up?
# accumulate        a += b changes an array in place; a = a + b makes another one.
# all_reduce        np.concatenate joins flat arrays, x.reshape(-1) flattens one. An asynchronous
#                   call returns something with a wait(), which returns the sum. To unpack, go
#                   through the names with a start that moves on by each array's size. Which line
#                   runs now, and which one only when the returned function is called?
# accumulated_gradient  The first addition should make a new array, not change sum_grads[0].
#                   dp.all_reduce(np.array(5)) is the sum of the ranks' numbers; int(...) of it
#                   does not change the dtype of what it divides.
# reduce_and_clip   Who knows the norm after the reduction? In a group of one, dp.all_reduce(x)
#                   returns x itself: work on a copy.
