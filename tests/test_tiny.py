"""The default model is what its record says: its size, its loss, and text of its source's kind."""

import re

import numpy as np
import pytest

from gpt_numpy.__main__ import TINY
from gpt_numpy.checkpoint import load_gpt2
from gpt_numpy.gpt2 import gpt2
from gpt_numpy.sample import generate
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import held_out_loss


@pytest.fixture(scope="module")
def model():
    params, n_head = load_gpt2(TINY)
    return params, n_head, Tokenizer.from_file(TINY / "merges.txt")


def recorded(what):
    text = (TINY / "README.md").read_text(encoding="utf-8")
    return float(re.search(rf"{what}: \**([\d.]+)", text)[1])


def held_out_ids(tokenizer):
    return np.array(tokenizer.encode((TINY / "held_out.txt").read_text(encoding="utf-8")))


def test_the_files_are_small_enough_to_ship():
    assert sum((TINY / name).stat().st_size for name in ("model.safetensors", "merges.txt")) < 3e6


def test_the_held_out_loss_is_the_recorded_one(model):
    """By the plain definition, through gpt2.py: every token but the first, in windows of n_ctx."""
    params, n_head, tokenizer = model
    ids, n_ctx = held_out_ids(tokenizer), len(params["wpe"])
    nats = []
    for i in range(0, len(ids) - 1, n_ctx):
        window = ids[i : i + n_ctx + 1]
        logits = gpt2(window[:-1], **params, n_head=n_head).astype(np.float64)  # [s, v]
        logits -= logits.max(axis=-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        nats += (-log_p[np.arange(len(window) - 1), window[1:]]).tolist()
    assert len(nats) == len(ids) - 1
    assert np.mean(nats) == pytest.approx(recorded("held-out loss"), abs=0.002)
    assert held_out_loss(params, n_head, ids, n_ctx) == pytest.approx(np.mean(nats), abs=1e-4)


def test_it_writes_words_of_its_source(model):
    """Nine of ten words that it makes up occur in held-out text, or are common English."""
    params, n_head, tokenizer = model
    known = set(re.findall(r"[a-z]+", (TINY / "held_out.txt").read_text(encoding="utf-8").lower()))
    ids = generate(params, n_head, tokenizer.encode("She was"), 400, temperature=0.5, seed=0)
    words = re.findall(r"[a-z]+", tokenizer.decode(ids).lower())
    assert len(words) > 200
    assert np.mean([word in known for word in words]) > 0.9
