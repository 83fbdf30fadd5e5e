"""WordPiece, small: BERT's way to cut words into pieces, to hold against BPE.

A piece is a string. Inside a word it begins with "##": "##s" and "s" are two pieces.
Training joins pieces, from characters on. Cutting takes the longest known piece, again and again.

Sources: Schuster and Nakajima 2012; Wu et al. 2016 (arXiv 1609.08144), section 4.1, which says
what training is to reach, the likeliest text, but not how; Devlin et al. 2018 (arXiv 1810.04805).
"""

import math
import re
from collections import Counter
from itertools import pairwise

UNKNOWN = "[UNK]"


def words(text):
    """Words and single signs; white space is lost.

    >>> words("I'll  see 42!")
    ['I', "'", 'll', 'see', '42', '!']
    """
    return re.findall(r"\w+|[^\w\s]", text)


def gain(both, left, right, total):
    """By how much a pair's join makes the text likelier, as a logarithm.

    both, left, right: how often the pair and each of its pieces occur; total: pieces of the text.
    At `both` places (left/total) * (right/total) becomes both/total; that the rest gets likelier
    or less so is left out.

    >>> gain(10, 10, 10, 100) > gain(1, 1, 1, 100) > gain(10, 50, 20, 100) == 0
    True
    """
    return both * math.log(both * total / (left * right))


def ratio(both, left, right, total):
    """The same for one place, and without the logarithm: what textbooks print."""
    return both / (left * right)


def train(text, n_vocab, score=gain):
    """Join the pair of the highest score until there are n_vocab pieces; returns them, as made.

    >>> train("hug hugs hug bun", 13)
    ['[UNK]', '##g', '##n', '##s', '##u', 'b', 'h', '##ug', 'hug', '##un', 'bun', 'hugs']
    """
    times = Counter(words(text))  # word -> how often it occurs
    cut = {word: [word[0], *("##" + letter for letter in word[1:])] for word in times}
    vocab = [UNKNOWN, *sorted(set().union(*cut.values()))]
    single, pairs = Counter(), Counter()

    def count(word, sign):
        for piece in cut[word]:
            single[piece] += sign * times[word]
        for pair in pairwise(cut[word]):
            pairs[pair] += sign * times[word]

    for word in cut:
        count(word, +1)
    while len(vocab) < n_vocab and (pairs := +pairs):  # + leaves out what is at 0
        total = single.total()
        best = min(
            pairs, key=lambda p: (-score(pairs[p], single[p[0]], single[p[1]], total), p)
        )
        joined = best[0] + best[1].removeprefix("##")
        vocab += [] if joined in vocab else [joined]
        for word in [word for word in cut if best in pairwise(cut[word])]:
            count(word, -1)
            pieces = []
            for piece in cut[word]:
                if pieces and (pieces[-1], piece) == best:
                    pieces[-1] = joined
                else:
                    pieces.append(piece)
            cut[word] = pieces
            count(word, +1)
    return vocab


def longest_match(word, vocab):
    """Cut a word: the longest piece that fits, then the longest for the rest, and so on.

    >>> longest_match("hugs", {"h", "hu", "hug", "##s", "##gs"})
    ['hug', '##s']
    >>> longest_match("mug", {"hug", "##ug"})
    ['[UNK]']
    """
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab:
                break
        else:
            return [UNKNOWN]  # the whole word: no piece for what comes here
        pieces.append(piece)
        start = end
    return pieces


def encode(text, vocab):
    """The pieces of a text.

    >>> encode("a hug!", {"a", "h", "##ug"})
    ['a', 'h', '##ug', '[UNK]']
    """
    return [piece for word in words(text) for piece in longest_match(word, vocab)]
