"""The command line: output, exit codes, one line for a mistake, consoles that lack characters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpt_numpy
from gpt_numpy import sample
from gpt_numpy.__main__ import main
from gpt_numpy.checkpoint import load_gpt2, read_safetensors, write_safetensors
from gpt_numpy.sample import generate
from gpt_numpy.tokenizer import Tokenizer

ROOT = Path(gpt_numpy.__file__).parents[1]
POSIX = sys.platform != "win32"


def run(*args, python=(), env=None, **how):
    """Run it as a user does -> the finished process, its output as bytes."""
    unset = {"PYTHONIOENCODING", "PYTHONUTF8", "PYTHONUNBUFFERED"}
    env = {k: v for k, v in os.environ.items() if k not in unset} | (env or {})
    command = [sys.executable, *python, "-m", "gpt_numpy", *map(str, args)]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.run(command, cwd=ROOT, env=env, timeout=60, **how)


def call(capsys, *args):
    """The same within this process -> exit code, stdout, stderr."""
    try:
        code = main([*map(str, args)])
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def expected(model_folder, prompt, n, **how):
    """What the model writes, by the functions beneath the command line."""
    tokenizer = Tokenizer.from_file(model_folder / "merges.txt")
    params, n_head = load_gpt2(model_folder)
    ids = list(generate(params, n_head, tokenizer.encode(prompt), n, **how))
    return ids, tokenizer.decode(ids)


def test_generate_prints_the_prompt_and_what_follows(model_folder, capsys):
    code, out, err = call(
        capsys, "generate", "the cat", "-n", 30, "--model", model_folder, "--seed", 3
    )
    assert (code, err) == (0, "")
    assert (
        out == "the cat" + expected(model_folder, "the cat", 30, temperature=0.8, seed=3)[1] + "\n"
    )


def test_generate_passes_its_options_on(model_folder, capsys):
    how = {"temperature": 1.7, "top_k": 9, "top_p": 0.8, "seed": 5}
    options = [x for name, value in how.items() for x in ("--" + name.replace("_", "-"), value)]
    code, out, err = call(
        capsys, "generate", "the", "-n", 50, "--model", model_folder, "--json", *options
    )
    assert (code, err, out.count("\n")) == (0, "", 1)
    result = json.loads(out)
    ids, text = expected(model_folder, "the", 50, **how)
    assert (
        result["ids"] == ids
        and result["text"] == text
        and result["prompt"] == "the"
        and result["seed"] == 5
    )
    for name in how:  # and each of them is felt
        others = (
            {**how, name: {"seed": 6}.get(name)} if name != "temperature" else {**how, name: 1.0}
        )
        assert expected(model_folder, "the", 50, **others)[0] != ids, name


def test_a_seed_reproduces_and_no_seed_does_not(model_folder, capsys):
    command = ["generate", "a", "-n", 40, "--model", model_folder, "--temperature", 2]
    assert call(capsys, *command, "--seed", 1) == call(capsys, *command, "--seed", 1)
    assert call(capsys, *command) != call(capsys, *command)


def test_40_tokens_by_default_and_none_with_0(model_folder, capsys):
    _, out, _ = call(capsys, "generate", "a", "--model", model_folder, "--json")
    assert len(json.loads(out)["ids"]) == 40
    assert call(capsys, "generate", "a", "--model", model_folder, "-n", 0) == (0, "a\n", "")


def test_text_comes_as_it_is_written(model_folder, monkeypatch):
    """Each token is flushed before the next is worked out."""
    events = []

    class Spy:
        def write(self, text):
            events.append(text)

        def flush(self):
            events.append("flush")

        def reconfigure(self, **how):
            pass

    probabilities = sample.probabilities

    def spy(*args):
        events.append("token")
        return probabilities(*args)

    monkeypatch.setattr(sample, "probabilities", spy)
    monkeypatch.setattr(sys, "stdout", Spy())
    assert (
        main(["generate", "a", "-n", "3", "--model", str(model_folder), "--temperature", "0"]) == 0
    )
    tokens = [i for i, event in enumerate(events) if event == "token"]
    assert len(tokens) == 3
    for i, j in zip(tokens, tokens[1:]):
        between = events[i + 1 : j]
        # or half a character is held back
        assert between[-1:] == ["flush"] or not any(e != "flush" for e in between)


USAGE = [
    ([], "required: COMMAND"),
    (["fly"], "invalid choice"),
    (["generate"], "required: prompt"),
    (["generate", "", "--model", "MODEL"], "the prompt is empty"),
    (
        ["generate", "a", "--model", "gpt5"],
        "--model gpt5: no such folder, and not one of tiny, gpt2",
    ),
    (["generate", "a", "-n", "-1"], "'-1' is not a whole number of at least 0"),
    (["generate", "a", "-n", "1.5"], "'1.5' is not a whole number of at least 0"),
    (["generate", "a", "-n", "many"], "'many' is not a whole number"),
    (["generate", "a", "--temperature", "-0.1"], "'-0.1' is not a number of at least 0"),
    (["generate", "a", "--temperature", "nan"], "'nan' is not a number of at least 0"),
    (["generate", "a", "--top-p", "0"], "'0' is not a number from"),
    (["generate", "a", "--top-p", "1.5"], "to 1"),
    (["generate", "a", "--top-k", "-3"], "'-3' is not a whole number of at least 0"),
    (["generate", "a", "--seed", "-1"], "'-1' is not a whole number of at least 0"),
    (["train"], "required: --text, --out"),
    (["train", "--text", "TEXT"], "required: --out"),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--steps", "-1"],
        "'-1' is not a whole number of at least 0",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--batch", "0"],
        "'0' is not a whole number of at least 1",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--n-layer", "0"],
        "'0' is not a whole number from 1",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--n-vocab", "256"],
        "'256' is not a whole number of at least 257",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--lr", "fast"],
        "'fast' is not a number of at least 0",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--lr", "nan"],
        "'nan' is not a number of at least 0",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--dtype", "float16"],
        "invalid choice: 'float16'",
    ),
    (["train", "--text", "TEXT", "--out", "OUT", "--optimizer", "sgd"], "invalid choice: 'sgd'"),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--held-out", "0.6"],
        "'0.6' is not a number from 0 to 0.5",
    ),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--save-every", "0"],
        "'0' is not a whole number of at least 1",
    ),
    (["train", "--text", "TEXT", "--out", "OUT", "--n-head", "3"], "does not divide by n_head 3"),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--tp", "3"],
        "tp = 3 does not divide the 4 heads",
    ),
    (["train", "--text", "TEXT", "--out", "OUT", "--dp", "3"], "batch of 8 sequences does not"),
    (
        ["train", "--text", "TEXT", "--out", "OUT", "--pp", "3"],
        "2 layers are too few for 3 chunks",
    ),
    (["train", "--text", "TEXT", "--out", "OUT", "--zero", "4"], "invalid choice: 4"),
]


@pytest.mark.parametrize(
    "args, message", USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_usage_ends_with_2_and_says_why(
    args, message, model_folder, text_file, tmp_path, capsys
):
    names = {"MODEL": model_folder, "TEXT": text_file, "OUT": tmp_path / "out"}
    code, out, err = call(capsys, *[names.get(arg, arg) for arg in args])
    assert code == 2 and out == ""
    assert err.startswith("python -m gpt_numpy") and message in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def damaged(model_folder, folder, change):
    """A copy of the model in another folder, changed."""
    folder.mkdir()
    tensors = {
        name: a.copy() for name, a in read_safetensors(model_folder / "model.safetensors").items()
    }
    merges = (model_folder / "merges.txt").read_bytes()
    file = folder / "model.safetensors"
    if change == "one tensor is missing":
        del tensors["h.1.mlp.c_fc.bias"]
    if change == "a tensor is misshaped":
        tensors["h.0.attn.c_proj.weight"] = tensors["h.0.attn.c_proj.weight"][:, :-1]
    if change == "the model broke in training":
        tensors["wte.weight"][:] = np.nan
    if change == "merges of another model":
        merges = merges[: merges.rindex(b"\n", 0, -1) + 1]
    if change == "merges are not text":
        merges = b"\xff\xfe\x00"
    write_safetensors(file, tensors, {"n_head": "2"})
    if change == "the file is cut":
        file.write_bytes(file.read_bytes()[:-5])
    if change == "a header beyond the file":
        file.write_bytes((2**40).to_bytes(8, "little") + file.read_bytes()[8:])
    if change == "an empty file":
        file.write_bytes(b"")
    (folder / "merges.txt").write_bytes(merges)
    if change == "no weights":
        file.unlink()
    if change == "no merges":
        (folder / "merges.txt").unlink()


DAMAGE = {
    "one tensor is missing": "h.1.mlp.c_fc.bias: expected shape (32,)",
    "a tensor is misshaped": "h.0.attn.c_proj.weight: expected shape (8, 8)",
    "the model broke in training": "logits are not finite",
    "merges of another model": "the model has 280 tokens, merges.txt 279",
    "merges are not text": "merges.txt is no merges file",
    "the file is cut": "not a sound safetensors file",
    "a header beyond the file": "not a sound safetensors file: a header of 1099511627776 bytes",
    "an empty file": "not a sound safetensors file",
    "no weights": "model.safetensors",
    "no merges": "merges.txt",
}


@pytest.mark.parametrize("change", DAMAGE)
def test_a_damaged_model_is_one_line(change, model_folder, tmp_path, capsys):
    damaged(model_folder, tmp_path / "model", change)
    code, out, err = call(
        capsys, "generate", "a", "--model", tmp_path / "model", "--temperature", 0
    )
    assert code == 1 and out == "" and err.count("\n") == 1
    assert err.startswith("python -m gpt_numpy: error: ") and DAMAGE[change] in err


def test_an_undamaged_copy_is_fine(model_folder, tmp_path, capsys):
    damaged(model_folder, tmp_path / "model", None)
    assert call(capsys, "generate", "a", "--model", tmp_path / "model")[0] == 0


def test_a_prompt_longer_than_the_context_is_one_line_and_prints_nothing(model_folder, capsys):
    code, out, err = call(capsys, "generate", "qz " * 20, "--model", model_folder)
    assert code == 1 and out == "" and err.count("\n") == 1 and "expected 1 to 16" in err


TRAIN = [
    "--n-vocab", 280, "--n-embd", 8, "--n-layer", 1, "--n-head", 2, "--n-ctx", 8, "--steps", 2,
]  # fmt: skip


@pytest.mark.parametrize(
    "file, more, message",
    [
        ("none.txt", [], "none.txt"),
        (".", [], ""),
        ("latin1.txt", [], "latin1.txt: byte 3 is not UTF-8"),
        ("short.txt", [], "n_vocab 280 is too large for this text"),
        ("short.txt", ["--n-vocab", 257, "--n-ctx", 50], "needs 51 at least"),
        ("good.txt", ["--n-ctx", 10**30], f"needs {10**30 + 1} at least"),
        ("good.txt", ["--batch", 10**30], ""),
        ("good.txt", ["--n-embd", 10**9], ""),
        ("good.txt", ["--out", "good.txt"], "good.txt"),
        ("good.txt", ["--out", "good.txt/below"], "below"),
        ("good.txt", ["--resume"], "nothing to resume"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    file, more, message, text_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpt_numpy.train.matmul_rate", lambda dtype: 1e9)
    Path("latin1.txt").write_bytes("caf\xe9 au lait".encode("latin-1"))
    Path("short.txt").write_text("just this", encoding="utf-8")
    Path("good.txt").write_bytes(text_file.read_bytes())
    code, out, err = call(capsys, "train", "--text", file, "--out", "out", *TRAIN, *more)
    assert code == 1 and out == "" and "Traceback" not in err
    # without the bar, if it had begun
    lines = [line for line in err.splitlines() if line and "step/s" not in line]
    assert (
        len(lines) == 1
        and lines[0].startswith("python -m gpt_numpy: error: ")
        and message in lines[0]
    )
    assert Path("good.txt").read_bytes() == text_file.read_bytes()


@pytest.mark.skipif(
    not POSIX or getattr(os, "geteuid", lambda: 0)() == 0, reason="nothing is unwritable for root"
)
def test_an_unwritable_folder_is_one_line(text_file, tmp_path, capsys):
    tmp_path.chmod(0o500)
    code, _, err = call(capsys, "train", "--text", text_file, "--out", tmp_path / "out", *TRAIN)
    tmp_path.chmod(0o700)
    assert code == 1 and err.count("\n") == 1 and "Permission denied" in err


def test_train_says_where_the_model_is_and_generate_reads_it(
    text_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("gpt_numpy.train.matmul_rate", lambda dtype: 1e9)
    code, out, err = call(
        capsys, "train", "--text", text_file, "--out", tmp_path / "m", *TRAIN, "--half"
    )
    assert (
        code == 0 and out.count("\n") == 1 and f"generate --model {tmp_path / 'm'} PROMPT" in out
    )
    assert call(capsys, "generate", "the", "--model", tmp_path / "m", "-n", 3)[0] == 0
    code, out, err = call(capsys, "train", "--text", text_file, "--out", tmp_path / "m", *TRAIN)
    assert code == 1 and out == "" and err.count("\n") == 1 and "add --resume" in err


def test_no_steps_at_all_write_the_first_weights(text_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gpt_numpy.train.matmul_rate", lambda dtype: 1e9)
    code, out, _ = call(
        capsys, "train", "--text", text_file, "--out", tmp_path, *TRAIN, "--steps", 0, "--json"
    )
    assert (
        code == 0 and json.loads(out)["losses"] == [] and (tmp_path / "model.safetensors").exists()
    )


# The regex package asks for the locale's encoding as it is imported, whatever its caller does.
STRICT = [
    "-X", "warn_default_encoding",
    "-W", "error::EncodingWarning", "-W", "ignore::EncodingWarning:regex._main",
]  # fmt: skip


def test_every_file_is_opened_with_its_encoding(model_folder, text_file, tmp_path):
    done = run("generate", "a", "--model", model_folder, "-n", 3, python=STRICT)
    assert (done.returncode, done.stderr) == (0, b"")
    done = run("train", "--text", text_file, "--out", tmp_path, *TRAIN, python=STRICT)
    assert done.returncode == 0 and b"EncodingWarning" not in done.stderr


@pytest.mark.skipif(not POSIX, reason="Windows gives Python its arguments as text")
def test_a_prompt_is_utf8_even_where_the_locale_is_ascii(model_folder):
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = ["generate", "\U0001f642 caf\xe9", "-n", 5, "--model", model_folder, "--seed", 1]
    done = run(*command, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"? caf?") and done.stdout.isascii()
    result = json.loads(run(*command, "--json", env=env).stdout)
    assert result["prompt"] == "\U0001f642 caf\xe9"
    assert (
        result["ids"]
        == expected(model_folder, "\U0001f642 caf\xe9", 5, temperature=0.8, seed=1)[0]
    )


@pytest.mark.skipif(not POSIX, reason="Windows gives Python its arguments as text")
def test_bytes_that_are_no_utf8_in_a_prompt_are_replaced(model_folder):
    command = [
        sys.executable, "-m", "gpt_numpy", "generate", b"a\xff", "-n", "0",
        "--model", str(model_folder),
    ]  # fmt: skip
    env = os.environ | {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=env)
    assert (done.returncode, done.stdout.rstrip(), done.stderr) == (0, "a\ufffd".encode(), b"")


def test_a_console_that_lacks_a_character_prints_a_question_mark(model_folder):
    env = {"PYTHONIOENCODING": "cp1252"}
    prompt = "caf\xe9 \U0001f642"
    if POSIX:
        env["LC_ALL"] = "C.UTF-8"
    done = run("generate", prompt, "-n", 0, "--model", model_folder, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.rstrip() == b"caf\xe9 ?"


@pytest.mark.skipif(not POSIX, reason="pipes close in another way")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(model_folder, more):
    """Like `head -c 5`."""
    read, write = os.pipe()
    command = [
        sys.executable, "-m", "gpt_numpy", "generate", "a", "-n", "2000",
        "--model", str(model_folder), *more,
    ]  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, env=env)
    os.close(write)
    if not more:
        assert os.read(read, 1) == b"a"
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert err == b"" and process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_to_a_full_disk_is_one_line(model_folder, more):
    with open("/dev/full", "wb") as full:
        done = run("generate", "a", "-n", 3, "--model", model_folder, *more, stdout=full)
    assert (
        done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr
    )


def test_importing_the_package_costs_no_more_than_numpy():
    script = """
import sys
import gpt_numpy.gpt2, gpt_numpy.tokenizer, gpt_numpy.checkpoint, gpt_numpy.sample
import gpt_numpy.layers, gpt_numpy.optim, gpt_numpy.train, gpt_numpy.__main__
print(*(m for m in ("regex", "requests", "tqdm", "mpi4py") if m in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert (done.stdout.split(), done.stderr) == ([], "")
    script = (
        "import sys, numpy; n = set(sys.modules); import gpt_numpy; "
        "print(*sorted(set(sys.modules) - n))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.split() == ["gpt_numpy"]


def test_help_names_the_commands_and_every_option(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0 and "generate" in out and "train" in out
    code, out, _ = call(capsys, "train", "--help")
    assert code == 0 and all(
        f"--{o}" in out for o in ("n-embd", "dtype", "seed", "resume", "json", "micro-batch")
    )


def test_an_interrupt_is_one_line(model_folder, capsys, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(sample, "probabilities", interrupted)
    code, _, err = call(capsys, "generate", "a", "--model", model_folder)
    assert code == 130 and err.split() == ["interrupted"]
