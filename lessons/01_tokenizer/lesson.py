# %% [markdown]
# # 1. From text to tokens: bytes, BPE, WordPiece
#
# *30 minutes. Explains [tokenizer.py](../../gpt_numpy/tokenizer.py) (`Tokenizer`, `split`,
# `merge_all`, `learn_merges`).*
#
# After this lesson you can turn any text into a list of numbers and back; train a byte pair
# encoding and say which pair it learns next; encode by hand with it; tell BPE from WordPiece by
# what they do to the same text; and say what a larger vocabulary saves and what it costs.
#
# A language model computes with numbers, so text has to become numbers first. There are two easy
# ways. One number for each character makes long lists. One for each word makes short lists, but
# there is no end to words: names, typing errors, `n_embd`. What is used lies between, pieces of
# words, and the pieces are learnt from text.

# %%
import sys

sys.path.extend(["../..", sys.path[0] + "/../.."])  # gpt_numpy's, from a notebook or a script

from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import gpt_numpy
from gpt_numpy.flops import Config, forward_flops, model, n_params
from gpt_numpy.tokenizer import BYTE_IDS, BYTES, Tokenizer, learn_merges, merge_all, split
from lessons import bars, show_svg

wordpiece = import_module("lessons.01_tokenizer.wordpiece")  # a name cannot begin with a digit

# %% [markdown]
# ## Everything is bytes
#
# There are some 150,000 characters in Unicode, and more every year. UTF-8 writes each of them as
# one to four bytes, and a byte has only 256 values. So begin with bytes: 256 numbers are enough
# for every text in the world, and nothing is ever unknown.

# %%
for word in ("cat", "café", "猫", "🙂"):
    print(f"{ascii(word):14} {len(word)} characters, bytes {list(word.encode())}")

# %% [markdown]
# Bytes alone make long lists, and attention compares each token with each earlier one. So join
# bytes that often stand together into one *token*. This is byte pair encoding, BPE (Sennrich et
# al. 2016, arXiv 1508.07909, section 3.2; on bytes: the GPT-2 paper, Radford et al. 2019, section
# 2.2).
#
# ## First, words
#
# Should "dog." become one token, and "dog!" another? It would be a waste. So a pattern first cuts
# the text, and no token crosses a cut. Look at where the spaces go:

# %%
print(split("The cat's hat, 42 hats!  That's all."))

# %% [markdown]
# The space before a word belongs to it. Put all pieces together and you have the text again, with
# every space: nothing is lost.
#
# ## Learn the merges
#
# Now the training. Begin with one token per byte. Count all pairs of neighbours, make the
# commonest pair a token, and do it again. Of equally common pairs, this package takes the one
# with the smaller ids. In its simplest form that is a few lines. Ids 0 to 255 are the bytes, in
# GPT-2's order (signs that can be printed first, so "!" is 0 and "a" is 64), and the token that
# the first merge makes is 256.

# %%
def naive_merges(text, n, show=False):  # -> n pairs of ids
    times = Counter(split(text))  # word -> how often it occurs
    ids = {word: [*word.encode().translate(BYTE_IDS)] for word in times}  # word -> its tokens
    tokens, merges = [bytes([b]) for b in BYTES], []  # id -> its bytes
    for new in range(256, 256 + n):
        counts = Counter()
        for word in times:
            for pair in pairwise(ids[word]):
                counts[pair] += times[word]
        best = left, right = min(counts, key=lambda pair: (-counts[pair], pair))
        ids = {word: merge_all(ids[word], {best: new}) for word in times}
        tokens.append(tokens[left] + tokens[right])
        merges.append(best)
        if show:
            length = sum(times[word] * len(ids[word]) for word in times)
            print(f"{counts[best]} times {tokens[left]} {tokens[right]}: {length} tokens left")
    return merges


rhyme = "the cat sat on the mat, the rat sat on the hat"
print(len(rhyme), "bytes")
merges = naive_merges(rhyme, 8, show=True)

# %% [markdown]
# "at" stands in half of the words, and no other pair in as many, so it comes first. Then whole
# words grow. Note that a merge can only use what is there: "the" had to wait for "he", and " the"
# for "the".
#
# The naive form counts everything anew for each merge. The package's `learn_merges` keeps the
# counts and touches only the places where the new token stands. Both learn the same:

# %%
tiny = Path(gpt_numpy.__file__).parent / "tiny"
text = (tiny / "held_out.txt").read_text(encoding="utf-8")  # Jane Austen
learn, fresh = text[: len(text) // 2], text[len(text) // 2 :]
print(f"{len(text):,} characters")
print("equal:", naive_merges(learn, 40) == learn_merges(learn, 40))

# %% [markdown]
# Here is a vocabulary of 1,024, trained on half of that text while you read. The first tokens are
# common in any English book; the last ones begin to tell which book this is.

# %%
tokenizer = Tokenizer.train(learn, 1024)
print("first:", *tokenizer.tokens[256:272])
print("last: ", *tokenizer.tokens[-12:])

# %% [markdown]
# ## Encode
#
# Encoding new text repeats the merges in the order in which they were learnt. Of all known pairs
# that are there, the one learnt first becomes a token, until no known pair is left.

# %%
for word in ("the", " the", "The", " feelings", " unfeelingly", " transformer"):
    ids = tokenizer.encode(word)
    print(f"{word!r:15}", [tokenizer.decode([i]) for i in ids], ids)

# %% [markdown]
# "the", " the" and "The" have nothing to do with each other for the model; it has to learn that
# they are one word. A word that was never seen becomes small pieces, and in the worst case bytes.
#
# It is tempting to take the longest token that fits instead, as in a dictionary. That is another
# encoding. With "bc" learnt first and "ab" second, "abc" is:

# %%
a, b, c = b"abc".translate(BYTE_IDS)
order = {(b, c): 256, (a, b): 257}
print("by merges:", merge_all([a, b, c], order), "  the longest first:", [257, c])

# %% [markdown]
# Both say "abc" when they are decoded, so a test that only decodes again does not see the
# difference. The model does: it was trained on one of the two. Neither is better as such. What
# matters is that a model is used as it was trained.
#
# ## Decode
#
# Decoding is easy: put the bytes of all tokens together, and read them as UTF-8. But in this
# order. A token need not end where a character ends:

# %%
ids = tokenizer.encode("é")
print("one character, ids", ids)
print("together: ", ascii(tokenizer.decode(ids)))
print("one by one:", *[ascii(tokenizer.decode([i])) for i in ids])
print("as a stream:", *[ascii(piece) for piece in tokenizer.decode_stream(ids)])

# %% [markdown]
# U+FFFD is the sign for "these bytes are no character". `decode_stream` is for text that appears
# while it is generated: it holds half a character back until the other half arrives.
#
# ## The end of a text
#
# One id is no piece of text: `<|endoftext|>` stands between two documents, so that a model learns
# that what follows has nothing to do with what came before. If somebody *writes* it in a text, it
# has to stay text, or strangers could end your documents:

# %%
print(tokenizer.encode("a<|endoftext|>"))
print(tokenizer.encode("a<|endoftext|>", allowed_special={"<|endoftext|>"}))

# %% [markdown]
# ## WordPiece, on the same text
#
# BERT cuts words with WordPiece (Wu et al. 2016, arXiv 1609.08144, section 4.1; Devlin et al.
# 2018, arXiv 1810.04805, section 3). A small one is in [wordpiece.py](wordpiece.py). It differs
# in four things:
#
# | | BPE, as GPT-2 has it | WordPiece, as BERT has it |
# | --- | --- | --- |
# | begins with | 256 bytes | the characters of the training text |
# | joins | the commonest pair | the pair that makes the text likelier |
# | cuts by | the merges, in order | the longest piece that fits |
# | inside a word | no mark; a space is part of the next word | "##"; spaces are lost |
#
# What is "likelier"? Say each piece comes with its own frequency, whatever stands beside it. Where
# `left` and `right` were joined, (left/total) * (right/total) becomes both/total. So a pair counts
# for more if its pieces seldom stand elsewhere.

# %%
vocab = wordpiece.train(learn, 1024)
print(vocab[:12])
print([piece for piece in vocab[1:] if len(piece.removeprefix("##")) > 1][:14])
sentence = "She hesitated: unfeelingly, he transformed a café."
print("WordPiece:", *wordpiece.encode(sentence, set(vocab)), sep="|")
bpe = [tokenizer.decode([i]) for i in tokenizer.encode(sentence)]
print("BPE:", *[ascii(piece)[1:-1] for piece in bpe], sep="|")

# %% [markdown]
# A character that the training text does not have makes the whole word `[UNK]`: what was there is
# gone, for the model as for `decode`. Byte-level BPE writes the same word with a few tokens more.
#
# How often does it matter by which of the two ways a word is cut? Give the longest match the
# tokens of BPE: each of them once as it is, to begin a word with, and once with "##", to go on.

# %%
known = {"##" * inside + t.decode("latin-1") for t in tokenizer.tokens for inside in (0, 1)}
words = [word for word in set(split(fresh)) if word.isascii()]
by_merges = [[tokenizer.decode([i]) for i in tokenizer.encode(word)] for word in words]
longest = [[p.removeprefix("##") for p in wordpiece.longest_match(w, known)] for w in words]
other = [word for word, x, y in zip(words, by_merges, longest) if x != y]
print(f"{len(other)} of {len(words)} different words are cut in another way")
sizes = [sum(map(len, cuts)) / len(words) for cuts in (by_merges, longest)]
print(f"tokens for each: {sizes[0]:.2f} by merges, {sizes[1]:.2f} with the longest first")

# %% [markdown]
# How Google trained WordPiece was never published. Textbooks print a score without the number of
# places: both / (left * right), the gain of *one* place. Try it. It loves pairs whose pieces occur
# nowhere else, even if all of that happens once in the book. These are the first pieces that each
# score makes, with how often their letters stand in the text:

# %%
by_ratio = wordpiece.train(learn, 1024, wordpiece.ratio)
for name, pieces in (("gain", vocab), ("ratio", by_ratio)):
    made = [piece for piece in pieces[1:] if len(piece.removeprefix("##")) > 1][:9]
    times = [learn.count(piece.removeprefix("##")) for piece in made]
    print(f"by {name:6}", *[f"{piece} ({n})" for piece, n in zip(made, times)])
counts = {
    "BPE": len(tokenizer.encode(fresh)),
    "WordPiece, by gain": len(wordpiece.encode(fresh, set(vocab))),
    "WordPiece, by ratio": len(wordpiece.encode(fresh, set(by_ratio))),
}
for name, count in counts.items():
    print(f"{name:20} {count:6} tokens, {len(fresh) / count:.2f} characters in each")
in_each = {name: len(fresh) / count for name, count in counts.items()}
show_svg(bars("Characters in a token, vocabulary 1,024", in_each), "bpe and wordpiece")

# %% [markdown]
# Before you conclude that WordPiece is better than BPE: it does not write down the spaces. And of
# the 1,024 ids of BPE, 256 are bytes, most of which English never uses.

# %%
used = set(tokenizer.encode(fresh))
print("ids of single bytes that were used:", sum(i < 256 for i in used), "of 256")
print("spaces and line ends in the text:", sum(c.isspace() for c in fresh))

# %% [markdown]
# ## What the vocabulary costs
#
# More merges, fewer tokens. But each further merge is rarer than the one before, so it saves less:

# %%
sizes = (257, 512, 1024, 2048, 3072)
per_token = {}
for n_vocab in sizes:
    trained = Tokenizer.train(learn, n_vocab)
    per_token[n_vocab] = len(fresh.encode()) / len(trained.encode(fresh))
rows = {f"{n_vocab:,}": per_token[n_vocab] for n_vocab in sizes}
show_svg(bars("Bytes in a token, by size of the vocabulary", rows), "bytes in a token")

# %% [markdown]
# And each token has its price. Its embedding, the row of the matrix `wte` by which the model
# begins with this token, is `n_embd` numbers to store and to train, and for every position of the
# text the model computes a score for *every* token: a product of `[n, d]` and `[d, v]`, 2dv FLOPs
# (multiplications and additions) for each token read; n is the number of tokens, d is `n_embd`
# and v the size of the vocabulary. Between the two stand `n_layer` equal blocks (lesson 2). So
# the cost of a byte of text first falls with the vocabulary, and then rises. Two models of
# different width, the vocabulary alone changed:

# %%
for n_embd, n_layer in ((128, 6), (768, 12)):
    print(f"n_embd {n_embd}, {n_layer} blocks: parameters in wte, FLOPs for scores, MFLOPs a byte")
    for n_vocab in sizes:
        config = Config(n_embd, 4, n_layer, 256, n_vocab)
        parts = forward_flops(config, batch=1)
        flops = sum(parts.values()) / config.n_ctx  # for each token
        share = n_vocab * n_embd / n_params(config)
        head = parts["head"] / sum(parts.values())
        price = flops / per_token[n_vocab] / 1e6
        print(f"  {n_vocab:5,} tokens {share:11.1%} {head:18.1%} {price:18.2f}")

# %% [markdown]
# A small model wants a small vocabulary, a large model can do with a large one. GPT-2 and GPT-3
# have 256 bytes, 50,000 merges and the end of text. The widest part of the whole network is its
# last one, the scores:

# %%
own = Tokenizer.from_file(tiny / "merges.txt")
print(f"the model of this package: {own.n_vocab:,} tokens")
for name in ("gpt2", "gpt3-175b"):
    config = model(name)
    share = config.n_vocab * config.n_embd / n_params(config)
    scores = 4 * config.n_ctx * config.n_vocab  # bytes in float32
    print(
        f"{name:9} {config.n_vocab:,} tokens: {share:5.1%} of the parameters, "
        f"and {scores / 1e6:.0f} MB of scores for one text of {config.n_ctx:,} tokens"
    )

# %% [markdown]
# So many scores for each token are worth splitting over several GPUs; lesson 8 does it.
#
# Who pays? A tokenizer is made for the text it was trained on. What you write in another language,
# or in another style, costs more tokens for the same thought: more time, more money, and less of
# it fits in `n_ctx`.

# %%
same_thought = {
    "English": "I had not seen her since the morning.",
    "shouted": "I HAD NOT SEEN HER SINCE THE MORNING.",
    "French": "Je ne l'avais pas vue depuis le matin.",
    "Chinese": "从早上起我就没有见过她。",
}
for language, sentence in same_thought.items():
    count = len(tokenizer.encode(sentence))
    print(f"{language:8} {len(sentence):3} characters, {count:3} tokens")

# %% [markdown]
# ## Three questions
#
# Answer first, then change a cell and run it.
#
# 1. Which pair is merged first in "aaaa aaa", how often does it count, and how many tokens are
#    left after that merge? (`naive_merges("aaaa aaa", 1, show=True)`)
# 2. A tokenizer trained on `learn` is used on `learn` itself. Has a token more bytes there than in
#    `fresh`, and does that difference grow with the vocabulary?
# 3. How many tokens has 猫 in the English tokenizer? Which character costs more, and how many
#    tokens can one character cost at most? (`len(tokenizer.encode("猫"))`)
