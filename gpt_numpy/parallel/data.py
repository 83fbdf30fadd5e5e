"""Data parallelism: every rank of the group `dp` has all the weights and a part of the batch.

Losses are sums over tokens divided by the token count of the whole batch, so the ranks' gradients
add up to the batch's, however unevenly its tokens are spread. One all-reduce does it, bucket by
bucket, each started as soon as its last gradient is there, while the backward pass goes on.
"""

import math

import numpy as np


def pack(arrays):
    """One flat array [k] of a dict of arrays: one message instead of many."""
    return np.concatenate([a.reshape(-1) for a in arrays.values()])


def unpack(flat, shapes):
    """The arrays of a flat one, {name: array}, by their names and shapes; views.

    >>> unpack(np.arange(5), {"w": (2, 2), "b": (1,)})
    {'w': array([[0, 1],
           [2, 3]]), 'b': array([4])}
    """
    arrays, start = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        arrays[name] = flat[start : start + size].reshape(shape)
        start += size
    return arrays


def shapes_of(arrays):
    return {name: a.shape for name, a in arrays.items()}


def all_reduce(grads, dp):
    """Start the sum over dp of a bucket of gradients; returns a function that waits for it."""
    work, shapes = dp.all_reduce(pack(grads), async_op=True), shapes_of(grads)
    return lambda: unpack(work.wait(), shapes)


def accumulate(sums, grads):
    """Add gradients to sums, {name: array}, in place; the first of a name becomes its sum."""
    for name, g in grads.items():
        if name in sums:
            sums[name] += g
        else:
            sums[name] = g


class Gradients:
    """Adds up a rank's gradients and starts each bucket's reduction when it is complete.

    uses    {name: how many gradients a weight gets}: one from each layer that uses it, for each
            micro-batch
    reduce  starts the reduction of a bucket, {name: gradient} -> a function that waits:
            `all_reduce`, or ZeRO's

    A bucket is what one layer completes; a tied weight is complete when the last of its layers
    has run.
    """

    def __init__(self, uses, reduce):
        self.uses, self.reduce = uses, reduce
        self.missing = dict(uses)
        self.partial, self.reduced, self.waiting = {}, {}, []

    def add(self, grads):
        accumulate(self.partial, grads)
        for name in grads:
            self.missing[name] -= 1
        bucket = {name: self.partial.pop(name) for name in grads if self.missing[name] == 0}
        if bucket:
            self.missing |= {name: self.uses[name] for name in bucket}
            self.waiting.append(self.reduce(bucket))
        while len(self.waiting) > 1:  # one reduction goes on behind the next layer's backward pass
            accumulate(self.reduced, self.waiting.pop(0)())

    def wait(self):
        """The reduced gradients, {name: gradient}; the next step begins anew."""
        while self.waiting:
            accumulate(self.reduced, self.waiting.pop(0)())
        reduced, self.reduced = self.reduced, {}
        return reduced


def handing_over(layer, add):
    """The layer, its gradients handed to `add(p, gradients)` as soon as they are there."""

    def run(x, p, *args):
        y, back = layer(x, p, *args)

        def back_and_add(dy):
            dx, grads = back(dy)
            add(p, grads)
            return dx, {}

        return y, back_and_add

    return run
