"""Lesson 1: write the tokenizer yourself.

Replace each `raise NotImplementedError(...)`. `python -m lessons check 1` says what passes.
Hints are at the end.

Here the id of a byte is its value: "a" is 97. (GPT-2 numbers the bytes in an order of its own.)
"""


def merge_pair(ids, pair, new_id):
    """A copy of ids in which new_id stands wherever the two ids of pair stood next to each other.

    From left to right, and without overlap: an id that has become part of a new one is gone.
    ids: a list of n ids; pair: (left, right) -> a new list of at most n ids

    >>> merge_pair([5, 1, 2, 7, 1, 2], (1, 2), 9)
    [5, 9, 7, 9]
    >>> merge_pair([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    raise NotImplementedError("go through ids; where a pair begins, write new_id and pass over it")


def bpe_encode(data, merges):
    """The ids of some bytes: of all known pairs, merge the one learnt first, until none is left.

    The ids begin as one for each byte. Where a pair stands in several places, it is merged from
    left to right.
    data: bytes; merges: {(left, right): new id}. New ids are 256, 257, ... in the order in which
    the pairs were learnt, so a pair that is made of merged ids comes after those. -> a list of ids

    >>> bpe_encode(b"abc", {(98, 99): 256, (97, 98): 257})  # "bc" was learnt before "ab"
    [97, 256]
    """
    raise NotImplementedError("as long as there is a known pair, merge the one with the lowest id")


def decode(ids, vocab):
    """The text of ids. Bytes that are no UTF-8, such as half a character, become U+FFFD.

    (How many of them is up to Python: `bytes.decode` has an option for it.)
    ids: a list of ids; vocab: {id: its bytes} -> a string

    >>> decode([2, 3, 3, 2], {2: b"n", 3: b"o"})
    'noon'
    """
    raise NotImplementedError("put the bytes together, then read them as UTF-8")


# Hints
#
# merge_pair   A `while` loop with a place i goes on by 2 where a pair begins, and by 1 elsewhere.
#              What if the last id has no right neighbour?
# bpe_encode   list(data) are the first ids, and itertools.pairwise(ids) their pairs. A pair that
#              is not known can count as learnt at infinity: merges.get(pair, math.inf). You have
#              merge_pair already.
# decode       A character of several bytes can be spread over several ids: what is the first
#              moment at which one can read it? See `errors` in help(bytes.decode).
