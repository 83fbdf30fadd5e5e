"""The checks of lesson 1."""

import random
from collections import Counter
from itertools import pairwise

from lessons.checking import brief, same, unchanged

MALFORMED_OK = {"decode": ("list", "shape", "dtype", "nan")}  # it returns a string
A, B, C = b"abc"


def replaced(ids, pair, new_id):
    """The same by Python's own str.replace: a character for each id."""
    text = "".join(map(chr, ids)).replace("".join(map(chr, pair)), chr(new_id))
    return list(map(ord, text))


def must_be_a_list(got):
    if not isinstance(got, list):
        raise AssertionError(f"expected a list of ids, got {brief(got)}")


def misled(ids, pair, new_id, skip, end):
    """What a loop gives that goes on by `skip` after a match, and stops `end` before the end."""
    made, i = [], 0
    while i < len(ids) - end:
        found = tuple(ids[i : i + 2]) == pair
        made.append(new_id if found else ids[i])
        i += skip if found else 1
    return made


def merged(merge_pair, ids, pair, new_id, mistakes=None):
    """Run merge_pair and refuse what is not right."""
    what = f"merge_pair({ids}, {pair}, {new_id})"
    twice = "an id was used twice: after a match go on behind the pair"
    lost = "the last id is lost, which has no right neighbour: range(len(ids) - 1) ends before it"
    try:
        with unchanged(ids):
            got = merge_pair(ids, pair, new_id)
    except IndexError as error:
        raise AssertionError(
            f"{what}: IndexError, {error}: the last id has no right neighbour, so there is no "
            "ids[i + 1] to compare"
        ) from error
    must_be_a_list(got)
    if got is ids:
        raise AssertionError("that is the list that was given: return a new one")
    known = [
        *(mistakes or {}).items(),
        (twice, misled(ids, pair, new_id, skip=1, end=0)),
        (lost, misled(ids, pair, new_id, skip=2, end=1)),
        (f"{twice}; and {lost}", misled(ids, pair, new_id, skip=1, end=1)),
    ]
    same(got, replaced(ids, pair, new_id), what, known)


def check_run_of_equal_tokens(merge_pair):
    mistakes = {
        "two pairs share an id: the next pair begins behind the first": [9, 9, 2],
        "that is from right to left": [1, 9, 2],
    }
    merged(merge_pair, [1, 1, 1, 2], (1, 1), 9, mistakes)
    for n in range(2, 8):
        merged(merge_pair, [7] * n, (7, 7), 300)


def check_tail_is_kept(merge_pair):
    merged(merge_pair, [5, 1, 2, 7], (1, 2), 9)
    merged(merge_pair, [1, 2, 1], (1, 2), 9)
    merged(merge_pair, [3, 1, 2], (1, 2), 9)


def check_every_occurrence(merge_pair):
    merged(
        merge_pair,
        [1, 2, 3, 1, 2],
        (1, 2),
        9,
        {"only the first one is merged": [9, 3, 1, 2]},
    )
    merged(merge_pair, [2, 1, 2, 1, 1, 2, 2], (1, 2), 9)  # 2, 1 is another pair


def check_lists_without_a_pair(merge_pair):
    for ids in ([], [1], [2], [2, 1], [1, 3, 2]):
        merged(merge_pair, ids, (1, 2), 9)


def check_many_lists(merge_pair):
    """Some ids are 0, which counts as false, or large, of which Python makes no single object."""
    rng = random.Random(0)
    for _ in range(300):
        some = [0, rng.randrange(1, 300), rng.randrange(1000, 2000)]
        ids = [rng.choice(some) for _ in range(rng.randrange(12))]
        pair = rng.choice(some), rng.choice(some)
        merged(merge_pair, ids, (pair[0] + 0, pair[1] + 0), 5000)


def right(data, merges):
    """All merges in the order learnt, each wherever it is possible."""
    ids = list(data)
    for pair, new in sorted(merges.items(), key=lambda item: item[1]):
        ids = replaced(ids, pair, new)
    return ids


def encoded(bpe_encode, data, merges, mistakes=None):
    merges = dict(merges)  # the checks that follow have theirs, whatever happens to this one
    known = merges if len(merges) < 5 else f"{len(merges)} merges"
    with unchanged(merges):
        got = bpe_encode(data, merges)
    must_be_a_list(got)
    same(got, right(data, merges), f"bpe_encode({data!r}, {known})", mistakes)


LATE = {(B, C): 256, (A, B): 257}


def check_earliest_merge_wins(bpe_encode):
    mistakes = {
        "that is the first pair of the text, or the longest match: merge what was learnt first": [
            257,
            C,
        ],
        "nothing is merged": [A, B, C],
    }
    encoded(bpe_encode, b"abc", LATE, mistakes)
    encoded(bpe_encode, b"cabcab", LATE)
    longest = {(A, B): 256, (C, A): 257, (256, C): 258, (258, A): 259}  # "abca" is a token
    encoded(bpe_encode, b"abcab", longest, {"the longest token that fits": [259, B]})


def check_merges_build_on_merges(bpe_encode):
    merges = {(A, A): 256, (256, A): 257, (257, B): 258}
    mistakes = {
        "a merge makes new pairs, which may be known": [256, A, B],
        "the last token is part of a known pair, too": [257, B],
    }
    encoded(bpe_encode, b"aaab", merges, mistakes)
    encoded(bpe_encode, b"aaaaabaab", merges)


def check_rank_not_count(bpe_encode):
    mistakes = {
        "that is the pair that is most frequent in this text: training is over": [257, B, 257],
    }
    encoded(bpe_encode, b"babba", {(A, B): 256, (B, A): 257}, mistakes)
    encoded(bpe_encode, b"cbcbcba", {(B, A): 256, (C, B): 257})


def check_nothing_to_merge(bpe_encode):
    for data in (b"xyz", b"", b"b", b"\x00\xff", b"ba"):
        encoded(bpe_encode, data, LATE)
    encoded(bpe_encode, b"abc", {})


def check_runs_of_one_byte(bpe_encode):
    for n in range(2, 9):
        encoded(bpe_encode, b"a" * n, {(A, A): 256, (256, 256): 257})


def check_many_texts(bpe_encode):
    rng = random.Random(1)
    for _ in range(30):
        ids = rng.choices(b"abc", (3, 2, 1), k=60)  # a text to train on
        merges = {}
        for new in range(256, 270):
            counts = Counter(pairwise(ids))
            best = min(counts, key=lambda pair: (-counts[pair], pair))
            merges[best] = new
            ids = replaced(ids, best, new)
        for n in (3, 10, 40):
            encoded(bpe_encode, bytes(rng.choices(b"abcd", k=n)), merges)


VOCAB = {0: b"a", 1: b"\xc3", 2: b"\xa9", 7: b"\xf0\x9f", 300: b"\x99\x82!", 4: b"\nb ", 5: b""}


def decoded(decode, ids, expected, mistakes=None):
    vocab = dict(VOCAB)
    of = b"".join(VOCAB[i] for i in ids)
    what = f"decode({ids}), whose bytes are {of}"
    try:
        with unchanged(ids, vocab):
            got = decode(ids, vocab)
    except UnicodeDecodeError as error:
        alone = error.object != of
        idea = (
            "a token alone need not be whole characters: put the bytes together first"
            if alone
            else "bytes that are no UTF-8 become U+FFFD: bytes.decode has an option for it"
        )
        raise AssertionError(f"{what}: UnicodeDecodeError on {error.object}: {idea}") from error
    same(got, expected, what, mistakes)


def check_character_over_two_tokens(decode):
    mistakes = {
        "a character can be spread over ids: put the bytes together first": "a\ufffd\ufffd",
        "bytes were dropped: put all of them together first": "a",
        "a byte is no character, and UTF-8 is not Latin-1": "a\xc3\xa9",
    }
    decoded(decode, [0, 1, 2], "a\xe9", mistakes)
    decoded(decode, [7, 300, 0], "\U0001f642!a")


def check_cut_character(decode):
    mistakes = {"bytes that are no UTF-8 were dropped: each becomes U+FFFD": "a"}
    decoded(decode, [0, 1], "a\ufffd", mistakes)
    decoded(decode, [2, 0], "\ufffda")
    decoded(decode, [0, 1, 0, 1, 2], "a\ufffda\xe9")


def check_ascii(decode):
    decoded(decode, [0, 0], "aa")
    decoded(decode, [0, 4, 0, 4], "a\nb a\nb ", {"white space belongs to the text": "a\nb a\nb"})


def check_nothing(decode):
    decoded(decode, [], "")
    decoded(decode, [5, 5], "")
