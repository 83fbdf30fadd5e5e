"""The tokenizer's speed beside tiktoken's and Hugging Face tokenizers', all with the same merges.

Encoding is timed on first use, with nothing remembered, in one thread. English is the text that
the caller gives; code is Python's own standard library; the Chinese, Japanese and Korean text is
made up of characters and words whose frequencies follow Zipf's law. A clause without spaces is one
word to BPE, and clauses hardly repeat, so that remembering words is little use there.
"""

import os
import random
import statistics
import sysconfig
import time
from itertools import accumulate, chain, islice
from pathlib import Path

from gpt_numpy.tokenizer import BYTES, END_OF_TEXT, LETTERS, Tokenizer

SIZE = 5_000_000  # bytes of each text
ROUNDS = 5


def rows(english, merges):
    """Measure -> [(name, our seconds, peer's name, its seconds, ours / peer's, that at most)].

    english: a text, repeated until it has 5 MB. merges: GPT-2's merges file. A peer that is not
    installed has a row that says so.
    """
    peers = {"tiktoken": tiktoken_encode, "tokenizers": tokenizers_encode}
    made = []
    for name, text, targets in (
        ("encode 5 MB of English", fill(english), (1 / 0.45, 1 / 4)),
        ("encode 5 MB of code", fill(standard_library()), (1 / 0.45, 1 / 4)),
        ("encode 5 MB of Chinese, Japanese, Korean", fill(cjk(SIZE // 2)), (1 / 0.25, None)),
    ):
        for (peer, prepare), target in zip(peers.items(), targets, strict=True):
            ours = prepared(lambda m: Tokenizer.from_file(m).encode, merges, text)
            theirs = prepared(prepare, merges, text)
            made.append(compare(name, ours, peer, theirs, target))
    text = fill(english)[: 2 * SIZE // 5]
    name = "learn 4,096 merges from 2 MB of English"
    ours = prepared(lambda m: lambda t: Tokenizer.train(t, 257 + 4096), merges, text)
    made.append(compare(name, ours, "tokenizers", prepared(tokenizers_train, merges, text), 1.0))
    return made


def prepared(prepare, merges, text):
    """A function that makes a fresh tokenizer and returns the seconds of its first use alone."""

    def seconds():
        use = prepare(merges)
        start = time.perf_counter()
        use(text)
        return time.perf_counter() - start

    return seconds


def compare(name, ours, peer, theirs, target):
    """Time both in turn, first one first, then the other, and take the medians."""
    try:
        theirs()
    except ImportError:
        return name, ours(), f"{peer} (not installed)", None, None, target
    times = {ours: [], theirs: []}
    for i in range(ROUNDS):
        for side in (ours, theirs) if i % 2 else (theirs, ours):
            times[side].append(side())
    a, b = statistics.median(times[ours]), statistics.median(times[theirs])
    return name, a, peer, b, a / b, target


def tiktoken_encode(merges):
    import tiktoken

    tokens = Tokenizer.from_file(merges).tokens
    # Its own pattern for GPT-2, with the possessive quantifiers that make it fast there.
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    return tiktoken.Encoding(
        "gpt2",
        pat_str=pattern,
        mergeable_ranks={token: i for i, token in enumerate(tokens[:-1])},
        special_tokens={END_OF_TEXT: len(tokens) - 1},
    ).encode_ordinary


def tokenizers_model(merges=()):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    names = LETTERS.copy()
    for left, right in merges:
        names.append(names[left] + names[right])
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {name: i for i, name in enumerate(names)},
            [(names[left], names[right]) for left, right in merges],
        )
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


def tokenizers_encode(merges):
    return tokenizers_model(Tokenizer.from_file(merges).merges).encode


def tokenizers_train(merges):
    model = tokenizers_model()
    import tokenizers

    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(BYTES) + 4096,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return lambda text: model.train_from_iterator([text], trainer)


def fill(text):
    """Repeat a text, or cut it, to SIZE bytes of UTF-8."""
    data = text.encode()
    return (data * (SIZE // len(data) + 1))[:SIZE].decode(errors="ignore")


def standard_library():
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def cjk(length):
    """Lines of Chinese, Japanese and Korean in turn, `length` characters or a few more in all."""
    rng = random.Random(0)

    def zipf(found):
        """Draw from found for ever: some often, most seldom."""
        weights = [*accumulate(1 / (rank + 10) for rank in range(len(found)))]
        while True:
            yield from rng.choices(found, cum_weights=weights, k=1000)

    def lexicon(codec, rows):
        """30,000 words of one to three letters of a codec."""
        cells = [bytes([row, cell]) for row in rows for cell in range(0xA1, 0xFF)]
        letters = [*"".join(cell.decode(codec, "ignore") for cell in cells)]
        rng.shuffle(letters)
        drawn = zipf(letters)
        return ["".join(islice(drawn, rng.randint(1, 3))) for _ in range(30_000)]

    hanzi, hangul = lexicon("gb2312", range(0xB0, 0xD8)), lexicon("euc_kr", range(0xB0, 0xC9))
    kanji, kana = lexicon("euc_jp", range(0xB0, 0xD0)), lexicon("euc_jp", [0xA4, 0xA5])
    japanese = [*chain.from_iterable(zip(kanji, kana, strict=True))]
    scripts = (zipf(hanzi), "", "，"), (zipf(japanese), "", "、"), (zipf(hangul), " ", ".")
    lines = []
    while length > 0:
        for words, space, stop in scripts:
            clauses = [space.join(islice(words, rng.randint(2, 6))) for _ in range(100)]
            lines.append((stop + space).join(clauses) + "\n")
            length -= len(lines[-1])
    return "".join(lines)
