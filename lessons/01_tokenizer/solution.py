"""Lesson 1: the answers."""

import math
from itertools import pairwise


def merge_pair(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def bpe_encode(data, merges):
    ids = list(data)
    while True:
        first = min(pairwise(ids), key=lambda pair: merges.get(pair, math.inf), default=None)
        if first not in merges:
            return ids
        ids = merge_pair(ids, first, merges[first])


def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")
