"""Text to token ids and back: byte-level byte pair encoding (BPE), equal to GPT-2's.

Encoding takes two steps. A pattern cuts the text into words; the space before a word belongs to
it. Then each word starts as its UTF-8 bytes, one token per byte, and as long as two neighbours are
a known pair, the pair that was learnt earliest becomes one token. Every text is bytes, so no text
is ever "unknown".

Training learns the pairs: make one token of the commonest pair of neighbours, again and again.

Ids follow from the merges alone: 0 to 255 are the bytes, 256 + i is the token that merge i makes,
and the last id is the special token <|endoftext|>. A pair's id is therefore also its rank: the
smaller, the earlier learnt.

Sources: Sennrich et al. 2016 (arXiv 1508.07909) for BPE; Radford et al. 2019 (GPT-2), section 2.2,
for bytes.
"""

from __future__ import annotations

import codecs
import os
from collections import Counter, defaultdict
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"

# Letters, a contraction's end, digits, or other signs, with at most one space before them; then
# white space, which leaves its last character to the word that follows. GPT-2 tries contractions
# first, which is slower and comes to the same: no letter or digit looks like their apostrophe.
PATTERN = r" ?\p{L}+|'(?:s|t|re|ve|m|ll|d)| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# A merges file is text, so it needs a letter for each byte. The bytes that Latin-1 shows as signs
# come first and stand for themselves; the 68 others get letters from U+0100 on: a space is "Ġ".
_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = bytes(_SHOWN + [b for b in range(256) if b not in _SHOWN])  # id -> byte
LETTERS = [*map(chr, _SHOWN), *map(chr, range(256, 512 - len(_SHOWN)))]  # id -> letter
BYTE_IDS = bytes(map(BYTES.index, range(256)))  # byte -> id, as a table for bytes.translate


class Tokenizer:
    """Byte-level BPE with the given merges: pairs of ids, the earliest learnt first.

    >>> tokenizer = Tokenizer.train("low lower lowest low", n_vocab=260)
    >>> ids = tokenizer.encode("low slow")
    >>> [tokenizer.decode([i]) for i in ids]
    ['low', ' ', 's', 'low']
    >>> tokenizer.decode(ids)
    'low slow'
    """

    def __init__(self, merges):
        self.merges = {pair: 256 + rank for rank, pair in enumerate(merges)}  # (left, right) -> id
        self.tokens = [bytes([b]) for b in BYTES]  # id -> its bytes
        for left, right in self.merges:
            self.tokens.append(self.tokens[left] + self.tokens[right])
        self._words = Words(self.tokens, self.merges)
        self.end_of_text = len(self.tokens)
        self.tokens.append(END_OF_TEXT.encode())
        self.n_vocab = len(self.tokens)

    def encode(self, text, allowed_special=()):
        """The token ids of a text.

        "<|endoftext|>" in it is text like any other, so that text from elsewhere cannot end
        anything; with allowed_special={"<|endoftext|>"} it is the special token.

        >>> tokenizer = Tokenizer([])
        >>> tokenizer.encode("a<|end")
        [64, 27, 91, 68, 77, 67]
        >>> tokenizer.encode("a<|endoftext|>", allowed_special={"<|endoftext|>"})
        [64, 256]
        """
        if not set(allowed_special) <= {END_OF_TEXT}:
            raise ValueError(
                f"allowed_special is () or {{{END_OF_TEXT!r}}}, not {allowed_special!r}"
            )
        ids = []
        for part in text.split(END_OF_TEXT) if allowed_special else [text]:
            ids += chain.from_iterable(map(self._words.__getitem__, split(part)))
            ids.append(self.end_of_text)
        return ids[:-1]  # the special token stands between parts, not after the last

    def decode(self, ids):
        """The text of token ids; bytes that are no UTF-8, such as half a character, become U+FFFD.

        >>> Tokenizer([]).decode([39, 72, 0])
        'Hi!'
        """
        return b"".join(map(self._bytes, ids)).decode("utf-8", errors="replace")

    def decode_stream(self, ids):
        """Yield the text of ids as they come, holding back half a character until its other half.

        >>> tokenizer = Tokenizer([])
        >>> list(tokenizer.decode_stream(tokenizer.encode("né!")))
        ['n', 'é', '!']
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for i in ids:
            if piece := decoder.decode(self._bytes(i)):
                yield piece
        if piece := decoder.decode(b"", final=True):
            yield piece

    def _bytes(self, i):
        if not 0 <= i < self.n_vocab:
            raise ValueError(f"token id {i} is not known: ids are 0 to {self.n_vocab - 1}")
        return self.tokens[i]

    @classmethod
    def train(cls, text, n_vocab):
        """Learn n_vocab - 257 merges from a text; a text that has not got so many is a ValueError.

        >>> Tokenizer.train("hug pug pun bun hugs", n_vocab=259).tokens[256:]
        [b'ug', b'hug', b'<|endoftext|>']
        """
        if n_vocab < 257:
            raise ValueError(f"n_vocab {n_vocab} is under 257: 256 bytes and {END_OF_TEXT}")
        merges = learn_merges(text, n_vocab - 257)
        if 257 + len(merges) < n_vocab:
            raise ValueError(
                f"n_vocab {n_vocab} is too large for this text: after {len(merges)} merges each "
                f"word is one token; ask for at most {257 + len(merges)}, or give more text"
            )
        return cls(merges)

    @classmethod
    def from_file(cls, path):
        """Read a merges file in GPT-2's format: a version line, then two tokens a line, in order.

        Only "#version" on the first line is skipped: eight of GPT-2's merges start with "#".
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no merges file: not UTF-8 at {error.start}") from None
        ids = {letter: i for i, letter in enumerate(LETTERS)}
        merges = []
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith("#version"):
                continue
            left, _, right = line.partition(" ")
            if left not in ids or right not in ids:
                fault = "expected two tokens, each of them a byte or made by a line above"
            elif left + right in ids:
                fault = "this token was already made by a line above"
            else:
                ids[left + right] = len(ids)
                merges.append((ids[left], ids[right]))
                continue
            raise ValueError(f"{path} is no merges file: line {number}, {line[:40]!r}: {fault}")
        return cls(merges)

    def save(self, path):
        """Write the file that from_file reads; whole or, if that fails, not at all."""
        names = LETTERS.copy()
        lines = ["#version: 0.2"]
        for left, right in self.merges:
            lines.append(f"{names[left]} {names[right]}")
            names.append(names[left] + names[right])
        part = Path(f"{path}.part")
        try:
            part.write_bytes("".join(f"{line}\n" for line in lines).encode())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def split(text):
    """Cut a text into words; merges never cross from one into the next.

    >>> split("I'll  see 42 cats!")
    ['I', "'ll", ' ', ' see', ' 42', ' cats', '!']
    """
    import regex  # imported when used; Python's own re has neither \p{L} nor Unicode's white space

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text, {text[error.start]!r}, is half a surrogate "
            "pair, which has no UTF-8: read the text with errors='replace'"
        ) from None
    return regex.findall(PATTERN, text)


class Words(dict):
    """Word -> its ids, worked out when first asked for and then remembered.

    Text repeats its words, so nearly every look-up is a plain dict's: that makes encode fast. At
    most MAX_WORDS words of at most MAX_LENGTH characters are remembered; when full, it starts
    afresh. The ids are tuples since Python's garbage collector passes over tuples of numbers.
    """

    MAX_WORDS, MAX_LENGTH = 100_000, 64

    def __init__(self, tokens, merges):
        self.merges = merges
        self.whole = {token: i for i, token in enumerate(tokens)}
        # The pairs of bytes that some merge joins where one character ends and the next begins.
        ends = {(tokens[left][-1], tokens[right][0]) for left, right in merges}
        self.joined = {(end, start) for end, start in ends if not 0x80 <= start < 0xC0}

    def __missing__(self, word):
        data = word.encode()
        if data in self.whole:  # training made this token of these bytes, and so would merging now
            ids = (self.whole[data],)
        elif len(word) > 1 and self.joined.isdisjoint(pairwise(data)):
            # No merge crosses from one character to the next, as in most clauses of Chinese.
            ids = tuple(chain.from_iterable(map(self.__getitem__, word)))
        else:
            ids = tuple(merge_all(data.translate(BYTE_IDS), self.merges))
        if len(word) <= self.MAX_LENGTH:
            if len(self) >= self.MAX_WORDS:
                self.clear()
            self[word] = ids
        return ids


def merge_all(ids, merges):
    """Merge the pair of lowest rank, the leftmost first, until no known pair is left.

    To look through all n tokens before each merge would take n**2 steps. A heap of the known
    pairs, and links from each token to its neighbours, make it n log n.

    >>> merge_all([1, 2, 2, 3], {(2, 3): 256, (1, 2): 257})
    [257, 256]
    """
    ids, left, right = linked([*ids, -1])
    heap = [(merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]
    heapify(heap)
    while heap:
        new, i = heappop(heap)
        j = right[i]
        if merges.get((ids[i], ids[j])) != new:
            continue  # one of the two has been merged with another since
        ids[i], ids[j] = new, -1
        before, after = left[i], right[j]
        right[i], left[after] = after, i
        if rank := merges.get((ids[before], new)):
            heappush(heap, (rank, before))
        if rank := merges.get((new, ids[after])):
            heappush(heap, (rank, i))
    return [i for i in ids if i >= 0]


def learn_merges(text, n):
    """Merge the commonest pair n times and return the pairs; fewer than n once no pair is left.

    Of equally common pairs, the one with the smaller ids (left, then right) is merged. Counts are
    kept up to date: a merge touches the places where its pair stands, and nothing else.

    >>> learn_merges("aaab aaab", 9)  # aa, ab, aaab, and that with its space
    [(64, 64), (64, 65), (256, 257), (220, 258)]
    """
    ids, times = [], []  # each distinct word once, then -1; and how often that word occurs
    for word, count in Counter(split(text)).items():
        ids += [*word.encode().translate(BYTE_IDS), -1]
        times += [count] * (len(ids) - len(times))
    ids, left, right = linked(ids)
    times = [0, *times]
    counts, places = defaultdict(int), defaultdict(list)  # pair -> count, places of its left token
    for i, pair in enumerate(pairwise(ids)):
        if -1 not in pair:
            counts[pair] += times[i]
            places[pair].append(i)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapify(heap)
    merges = []
    while heap and len(merges) < n:
        count, pair = heappop(heap)
        if -count != counts[pair]:  # other merges have taken some of it: back, to where it belongs
            heappush(heap, (-counts[pair], pair))
            continue
        if count == 0:
            break
        new = 256 + len(merges)
        merges.append(pair)
        found = defaultdict(list)  # the new token's pairs with its neighbours -> their places
        for i in places.pop(pair):
            j = right[i]
            if (ids[i], ids[j]) != pair:
                continue  # one of the two has been merged with another since
            ids[i], ids[j] = new, -1
            before, after = left[i], right[j]
            right[i], left[after] = after, i
            if (token := ids[before]) >= 0:
                counts[token, pair[0]] -= times[i]
                counts[token, new] += times[i]
                found[token, new].append(before)
            if (token := ids[after]) >= 0:
                counts[pair[1], token] -= times[i]
                counts[new, token] += times[i]
                found[new, token].append(i)
        places.update(found)
        for now in found:
            heappush(heap, (-counts[now], now))
    return merges


def linked(ids):
    """Put an end in front of ids; return them and the places of their left and right neighbours.

    -1 is in no pair: it marks the ends of words and the places of tokens that were merged away.

    >>> linked([5, 6, -1])
    ([-1, 5, 6, -1], [-1, 0, 1, 2], [1, 2, 3, 4])
    """
    n = len(ids)
    return [-1, *ids], list(range(-1, n)), list(range(1, n + 2))
