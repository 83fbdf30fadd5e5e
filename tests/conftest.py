"""Shared by the tests: a text to train on, and the folder of a small untrained model."""

import random
from pathlib import Path

import numpy as np
import pytest

from gpt_numpy.checkpoint import save_gpt2
from gpt_numpy.flops import Config
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import init_params

WORDS = [
    "the",
    "a",
    "cat",
    "sat",
    "on",
    "mat",
    "and",
    "saw",
    "dogs",
    "run",
    "over",
    "green",
    "hills",
    "while",
    "rain",
]


@pytest.fixture(scope="session")
def text():
    """A few thousand words in a random order that is always the same."""
    rng = random.Random(1)
    return " ".join(rng.choice(WORDS) + rng.choice(["", "", ",", "."]) for _ in range(2000))


@pytest.fixture(scope="session")
def text_file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model_folder(text, tmp_path_factory) -> Path:
    """An untrained model of 16 tokens of context, with its merges.txt."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.train(text, 280)
    tokenizer.save(folder / "merges.txt")
    params = init_params(
        Config(n_embd=8, n_head=2, n_layer=2, n_ctx=16, n_vocab=280), np.float32, seed=1
    )
    params["wte"] *= 40  # far from uniform
    save_gpt2(folder, params, n_head=2)
    return folder
