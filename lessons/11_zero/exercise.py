"""Lesson 11: write ZeRO yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 11` says what passes.
Hints are at the end.

How an array is cut into the shards of n ranks, in all of these exercises: it is flattened; zeros
are added at its end until its size divides by n; rank r has the r-th of n equal parts, [k]. In
code, rank r has row r of [n, k].
"""

import numpy as np  # noqa: F401

TEACHES = {
    "reduce_scatter": "gpt_numpy.parallel.zero.reduce_scatter",
    "all_gather": "gpt_numpy.parallel.zero.all_gather",
}


def state_bytes(n_params, dp=1, zero=0, grad_bytes=2):
    """Bytes that each rank holds of weights, gradients and Adam's state.

    A parameter has 2 bytes (bf16), its gradient grad_bytes (2, or 4 if gradients are added up in
    fp32), and the optimizer 12: weight, mean and mean square in fp32. ZeRO of stage `zero` splits
    over dp ranks: 0 nothing, 1 the optimizer's 12, 2 also the gradients, 3 also the weights.
    Without padding. -> a number

    >>> [round(state_bytes(7.5e9, dp=64, zero=stage) / 1e9, 3) for stage in range(4)]
    [120.0, 31.406, 16.641, 1.875]
    """
    raise NotImplementedError("bytes of three kinds, each split or not")


def reduce_scatter(grads, dp):
    """Start the reduction of a bucket of gradients; returns a function that waits for it.

    What that function returns is {name: this rank's shard [k] of the sum over all ranks}. The
    whole bucket travels in a single dp.reduce_scatter, which is under way when this returns
    (async_op=True), so that the rank can compute on until it calls the function. The function
    holds names and sizes, but not the gradients: their memory is free as soon as they are sent.
    grads: {name: array of any shape}, this rank's part of the sum. dp: a group.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> grads = [{"w": np.array([[1, 2, 3]]), "b": np.array([4, 5])}, {
    ...     "w": np.array([[10, 20, 30]]), "b": np.array([40, 50])}]
    >>> shards = run(lambda rank: reduce_scatter(grads[rank.rank], rank.dp)(), Mesh(dp=2))
    >>> [{name: shard.tolist() for name, shard in shard.items()} for shard in shards]
    [{'w': [11, 22], 'b': [44]}, {'w': [33, 0], 'b': [55]}]
    """
    raise NotImplementedError("put all shards into one array [n, all k], and scatter its rows")


def all_gather(shards, shapes, dp):
    """The whole arrays of a bucket, {name: array}, from all ranks' shards.

    shards: {name: [k]}, this rank's, with its names in the same order on all ranks; shapes: {name:
    the whole array's shape}, may have more names, and in another order. The whole
    bucket travels in a single dp.all_gather.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> shards = [{"w": np.array([11, 22]), "b": np.array([44])},
    ...           {"w": np.array([33, 0]), "b": np.array([55])}]
    >>> shapes = {"w": (1, 3), "b": (2,)}
    >>> whole = run(lambda rank: all_gather(shards[rank.rank], shapes, rank.dp), Mesh(dp=2))
    >>> [{name: x.tolist() for name, x in arrays.items()} for arrays in whole]
    [{'w': [[11, 22, 33]], 'b': [44, 55]}, {'w': [[11, 22, 33]], 'b': [44, 55]}]
    """
    raise NotImplementedError("gather one array, cut it by names, cut off the padding")


def zero1_step(weights, grads, optimizer, lr, dp):
    """A step of ZeRO-1: the new weights, {name: array}, whole and the same on all ranks.

    Each rank's optimizer moves this rank's shards alone, by the sum of all ranks' gradients. (A
    sum, not a mean: losses are divided by the whole batch's tokens already.) No other number of
    the optimizer exists on this rank.
    weights: {name: array}, whole and the same on all ranks; grads: {name: array}, this rank's
    part of the sum; both stay as they are. optimizer: its step(shards, grads, lr) moves shards,
    {name: [k]}, in place, by gradients of the same shapes.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> from gpt_numpy.optim import AdamW
    >>> def program(rank):
    ...     weights, grads = {"w": np.zeros(3)}, {"w": np.array([1.0, -2.0, rank.rank])}
    ...     adam = AdamW({"w": np.zeros(2)})  # of the shard: two of three numbers and a zero
    ...     return zero1_step(weights, grads, adam, 0.1, rank.dp)["w"].round(6).tolist()
    >>> run(program, Mesh(dp=2))
    [[-0.1, 0.1, -0.1], [-0.1, 0.1, -0.1]]
    """
    raise NotImplementedError("reduce-scatter, move this rank's shards, all-gather")


def clip_shards(shards, max_norm, dp):
    """Clip a gradient of which every rank has only its shards.

    The norm is that of all arrays and all ranks' shards together. If it is above max_norm, all are
    scaled by max_norm / norm, else they stay. Ranks tell each other about their shards in a few
    numbers, not the shards. shards: {name: [k]}, stay as they are. -> {name: clipped shard [k]},
    of the same dtype, and the norm before, a number.

    >>> from gpt_numpy.mesh import Mesh, run
    >>> shards = [{"w": np.array([3.0, 0.0])}, {"w": np.array([0.0, 4.0])}]
    >>> clipped = run(lambda rank: clip_shards(shards[rank.rank], 1.0, rank.dp), Mesh(dp=2))
    >>> [(shard["w"].round(6).tolist(), round(float(norm), 6)) for shard, norm in clipped]
    [([0.6, 0.0], 5.0), ([0.0, 0.8], 5.0)]
    """
    raise NotImplementedError("add squares up over ranks")


# Hints
#
# Arrays are on the ranks' devices, and so are those that you make: np.zeros(3, x.dtype, like=x)
# makes one beside x. np.concatenate, np.split, reshape and slices work as in NumPy; np.pad and
# x.flatten do not, x.reshape(-1) does.
#
# state_bytes     At stage 2 what is divided by dp is 12 + grad_bytes.
# reduce_scatter  Each array's rows [n, k] first. Joined along axis 1 they are [n, sum of all k]:
#                 row r is what rank r shall have. dp.reduce_scatter cuts along axis 0, so each
#                 rank gets one row, [1, sum of all k]; cut it at the ends of the names' shards.
#                 A variable that the inner function uses is held by it: take list(grads) before.
# all_gather      The same backwards: what is gathered is [n, sum of all k], and the columns of one
#                 name are that array's rows [n, k]. The shape says how many are no padding.
# zero1_step      Row r of a weight is a view: the optimizer would write into the weight.
# clip_shards     dp.all_reduce of what? Norms do not add up.
