"""train.py: what is learnt, and that no way of stopping changes it or breaks what is on disk."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpt_numpy import checkpoint, train
from gpt_numpy.checkpoint import load_gpt2, read_metadata, read_safetensors, write_safetensors
from gpt_numpy.optim import AdamW, clip
from gpt_numpy.parallel.model import Layout
from gpt_numpy.tokenizer import Tokenizer
from gpt_numpy.train import Settings, draw_batch, held_out_loss, init_params, learning_rate
from tests.test_gpt2 import HEADS, N_VOCAB, random_params, slow_gpt2

SMALL = Settings(
    n_vocab=280, n_embd=8, n_head=2, n_layer=1, n_ctx=8, steps=12, batch=3, warmup=3, lr=0.02,
    max_norm=0.5, dtype="float64",
)  # fmt: skip
ROOT = Path(train.__file__).parents[1]


@pytest.fixture(autouse=True)
def no_measuring(monkeypatch):
    """The machine's peak takes half a second to measure."""
    monkeypatch.setattr(train, "matmul_rate", lambda dtype: 1e9)


def tensors(folder, file="train.safetensors"):
    return {name: a.copy() for name, a in read_safetensors(folder / file).items()}


def test_a_text_of_one_window_has_one_window():
    for seed in range(20):
        tokens, targets = draw_batch(np.arange(9), 2, 8, np.random.default_rng(seed))
        assert (
            tokens.tolist() == [list(range(8))] * 2 and targets.tolist() == [list(range(1, 9))] * 2
        )


def test_every_window_can_be_drawn_and_none_beyond_the_end():
    tokens, targets = draw_batch(np.arange(8), 400, 4, np.random.default_rng(0))
    assert tokens.shape == targets.shape == (400, 4)
    assert set(tokens[:, 0].tolist()) == {0, 1, 2, 3}  # a window at 4 would have no last target
    np.testing.assert_array_equal(targets, tokens + 1)
    assert targets.max() == 7
    assert np.bincount(tokens[:, 0]).min() > 60  # each about 100 times


@pytest.mark.parametrize("n, n_ctx", [(8, 8), (0, 1), (3, 8)])
def test_a_text_without_a_window_is_a_clear_error(n, n_ctx):
    with pytest.raises(
        ValueError, match=rf"text has {n} tokens: .*n_ctx = {n_ctx} needs {n_ctx + 1}"
    ):
        draw_batch(np.arange(n), 1, n_ctx, np.random.default_rng(0))


def test_the_learning_rate_rises_then_falls_along_a_cosine():
    s = Settings(lr=2.0, warmup=4, steps=14, final_lr=0.25)
    assert [learning_rate(s, i) for i in range(5)] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert math.isclose(learning_rate(s, 9), 2 * (0.25 + 0.75 / 2))  # half-way
    assert math.isclose(learning_rate(s, 14), 0.5)
    assert learning_rate(Settings(lr=2.0, warmup=0, steps=1), 0) == 2
    # NumPy's would widen float32
    assert all(type(learning_rate(s, i)) is float for i in range(14))


def test_held_out_loss_predicts_every_token_but_the_first_once():
    params = random_params()
    ids = np.random.default_rng(0).integers(0, N_VOCAB, 17)
    nll = 0.0
    for i in range(0, 16, 5):  # windows of 5, 5, 5 and 1
        tokens, targets = ids[i : i + 5][: 16 - i], ids[i + 1 : i + 6]
        rows = slow_gpt2(tokens, params, HEADS)
        nll += sum(
            math.log(sum(math.exp(x) for x in row)) - row[t] for row, t in zip(rows, targets)
        )
    assert abs(held_out_loss(params, HEADS, ids, 5) - nll / 16) < 1e-10


@pytest.mark.parametrize("parallel_block", [False, True])
def test_first_weights_are_gpt2s(parallel_block):
    config = Settings(n_vocab=300, n_embd=64, n_head=2, n_layer=8, n_ctx=50).config
    flat = checkpoint.flatten(init_params(config, np.float32, 3, parallel_block))
    assert flat.keys() == checkpoint.gpt2_shapes(300, 50, 64, 8, parallel_block).keys()
    for name, w in flat.items():
        assert w.dtype == np.float32
        if w.ndim == 1:
            assert (w == (1 if name.endswith("weight") else 0)).all()
        else:
            deviation = 0.02 / 4 if name.endswith("c_proj.weight") else 0.02
            assert abs(w.std() / deviation - 1) < 0.05 and abs(w.mean()) < deviation / 10
    again = checkpoint.flatten(init_params(config, np.float32, 3, parallel_block))
    assert all((w == again[name]).all() for name, w in flat.items())
    assert (flat["wte.weight"] != init_params(config, np.float32, 4)["wte"]).any()


def test_losses_fall_and_the_model_can_be_loaded(text, tmp_path, capsys):
    settings = replace(SMALL, steps=60, dtype="float32", held_out=0.1)
    result = train.train(text, tmp_path / "new" / "folder", settings, half=True)
    losses = result["losses"]
    assert len(losses) == 60 and abs(losses[0] - math.log(280)) < 0.1
    assert np.mean(losses[-5:]) < losses[0] - 1 and abs(result["held_out_loss"] - losses[-1]) < 0.7
    assert result["tokens_per_second"] > 0 and result["mfu"] > 0
    out, err = capsys.readouterr()
    assert out == "" and all(word in err for word in ("loss ", "tokens/s", "MFU", "60/60"))
    params, n_head = load_gpt2(tmp_path / "new" / "folder")
    assert n_head == 2 and len(params["wte"]) == 280
    tokenizer = Tokenizer.from_file(tmp_path / "new" / "folder" / "merges.txt")
    ids = np.array(tokenizer.encode(text[-len(text) // 10 :]))
    # it was rounded to float16
    assert abs(held_out_loss(params, 2, ids, 8) - result["held_out_loss"]) < 0.02


def test_without_held_out_text_there_is_no_held_out_loss(text, tmp_path):
    assert (
        train.train(text, tmp_path, replace(SMALL, steps=1, held_out=0.0))["held_out_loss"] is None
    )


def test_a_run_is_its_steps_by_hand(text, tmp_path):
    """Against a loop written out: batches by (seed, step), mean loss, clipping, learning rate."""
    from gpt_numpy import layers

    settings = replace(SMALL, steps=4, micro_batch=2)
    result = train.train(text, tmp_path, settings)
    tokenizer = Tokenizer.train(text, 280)
    ids = np.array(tokenizer.encode(text[: len(text) - int(len(text) * 0.05)]))
    params = init_params(settings.config, np.float64, 0)
    flat = checkpoint.flatten(params)
    optimizer, losses = AdamW(flat, weight_decay=0.1), []
    for step in range(4):
        tokens, targets = draw_batch(ids, 3, 8, np.random.default_rng((0, step)))
        loss, back = layers.gpt2(tokens, params, targets, 24, 2)
        grads = checkpoint.flatten(back()[1])
        clip(grads, 0.5)
        optimizer.step(flat, grads, learning_rate(settings, step))
        losses.append(loss)
    np.testing.assert_allclose(result["losses"], losses, rtol=0, atol=1e-10)
    for name, w in tensors(tmp_path, "model.safetensors").items():
        np.testing.assert_allclose(w, flat[name], rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 100])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_any_micro_batch_gives_the_same_losses(text, tmp_path, micro_batch, optimizer):
    settings = replace(SMALL, optimizer=optimizer)
    whole = train.train(text, tmp_path / "a", settings)["losses"]
    parts = train.train(text, tmp_path / "b", replace(settings, micro_batch=micro_batch))["losses"]
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("micro_batch", [0, 1, 2, 3])
def test_a_step_weighs_every_token_alike_however_they_are_masked(micro_batch):
    from gpt_numpy.train import OneDevice

    settings = replace(SMALL, micro_batch=micro_batch, max_norm=1e9)
    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(0, N_VOCAB, (2, 4, 5))
    targets[0], targets[1, 1:], targets[2, 2] = -1, -1, -1
    nll, count = 0.0, 0
    params = random_params()
    for row, t in zip(tokens, targets):
        for logits, target in zip(slow_gpt2(row, params, HEADS), t):
            if target >= 0:
                nll += math.log(sum(math.exp(x) for x in logits)) - logits[target]
                count += 1
    model = OneDevice(params, replace(settings, n_head=HEADS))
    loss, norm = model.step(tokens, targets, 0.0)
    assert count == 10 and abs(loss - nll / count) < 1e-10
    reference = OneDevice(random_params(), replace(settings, n_head=HEADS, micro_batch=0))
    assert abs(norm - reference.step(tokens, targets, 0.0)[1]) < 1e-10
    with np.errstate(all="raise"):
        assert model.step(tokens, np.full_like(targets, -1), 0.1) == (0, 0)


class Stop(Exception):
    pass


def stop_after(monkeypatch, steps):
    """Make the run fail in the step after so many."""
    step = train.OneDevice.step
    taken = []

    def run(self, *args):
        if len(taken) == steps:
            raise Stop
        taken.append(1)
        return step(self, *args)

    monkeypatch.setattr(train.OneDevice, "step", run)


@pytest.mark.parametrize("optimizer, dtype", [("adamw", "float32"), ("lamb", "float64")])
@pytest.mark.parametrize("stop, every", [(1, 1), (5, 1), (7, 3), (11, 5)])
def test_a_resumed_run_equals_one_that_was_never_stopped(
    text, tmp_path, monkeypatch, optimizer, dtype, stop, every
):
    settings = replace(SMALL, optimizer=optimizer, dtype=dtype)
    whole = train.train(text, tmp_path / "a", settings)
    with monkeypatch.context() as patch:
        stop_after(patch, stop)
        with pytest.raises(Stop):
            train.train(text, tmp_path / "b", settings, save_every=every)
    assert len(tensors(tmp_path / "b")["losses"]) == (stop // every) * every
    resumed = train.train(text, tmp_path / "b", settings, resume=True)
    assert (
        resumed["losses"] == whole["losses"] and resumed["held_out_loss"] == whole["held_out_loss"]
    )
    for file in ("train.safetensors", "model.safetensors", "merges.txt"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_a_finished_run_that_is_resumed_stays_as_it_is(text, tmp_path):
    whole = train.train(text, tmp_path, SMALL)
    before = tensors(tmp_path)
    assert train.train(text, tmp_path, SMALL, resume=True)["losses"] == whole["losses"]
    np.testing.assert_equal(tensors(tmp_path), before)


def test_a_run_may_get_more_steps_and_another_micro_batch(text, tmp_path):
    first = train.train(text, tmp_path, SMALL)["losses"]
    longer = replace(SMALL, steps=15, micro_batch=1)
    more = train.train(text, tmp_path, longer, resume=True)["losses"]
    assert len(more) == 15 and more[:12] == first


OTHERS = {
    "n_vocab": 281, "n_embd": 16, "n_head": 4, "n_layer": 2, "n_ctx": 9, "parallel_block": True,
    "batch": 4, "optimizer": "lamb", "lr": 0.03, "warmup": 4, "final_lr": 0.2, "weight_decay": 0.2,
    "max_norm": 1.0, "held_out": 0.1, "dtype": "float32", "seed": 1,
}  # fmt: skip


def test_resuming_with_any_other_setting_is_refused_by_its_name(text, tmp_path):
    train.train(text, tmp_path, replace(SMALL, steps=1))
    before = (tmp_path / "train.safetensors").read_bytes()
    for name, value in OTHERS.items():
        with pytest.raises(
            ValueError, match=f"was trained with {name} = .* cannot go on with {value}"
        ):
            train.train(text, tmp_path, replace(SMALL, **{name: value}), resume=True)
    assert (tmp_path / "train.safetensors").read_bytes() == before
    assert OTHERS.keys() | {"steps", "micro_batch"} == vars(SMALL).keys()


def test_a_folder_with_a_run_is_not_trained_over(text, tmp_path):
    train.train(text, tmp_path, replace(SMALL, steps=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="train.safetensors exists: add --resume"):
        train.train(text, tmp_path, replace(SMALL, seed=5))
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_folder_without_a_run_cannot_be_resumed(text, tmp_path):
    with pytest.raises(ValueError, match="nothing to resume: run without --resume"):
        train.train(text, tmp_path / "none", SMALL, resume=True)
    assert not (tmp_path / "none").exists()


def test_another_programs_state_is_refused(text, tmp_path):
    write_safetensors(tmp_path / "train.safetensors", {"x": np.zeros(3)})
    with pytest.raises(ValueError, match="no run of this program"):
        train.train(text, tmp_path, SMALL, resume=True)


@pytest.mark.parametrize("name, change", [
    ("t", None), ("losses", None), ("h.0.ln_1.bias", None), ("v.wte.weight", None),
    ("t", lambda a: a.repeat(2)), ("losses", lambda a: np.append(a, 1.0)),
    ("h.0.mlp.c_fc.bias", lambda a: a[:1]), ("wpe.weight", lambda a: a.astype(np.int64)),
])  # fmt: skip
def test_a_damaged_state_is_refused_by_the_name_of_the_array(text, tmp_path, name, change):
    train.train(text, tmp_path, replace(SMALL, steps=2))
    file = tmp_path / "train.safetensors"
    state = {key: a.copy() for key, a in read_safetensors(file).items()}
    array = state.pop(name)
    if change:
        state[name] = change(np.atleast_1d(array) if name == "t" else array)
    write_safetensors(file, state, read_metadata(file))
    before = file.read_bytes()
    with pytest.raises(ValueError, match=rf"train.safetensors is damaged: {name} should be of"):
        train.train(text, tmp_path, replace(SMALL, steps=3), resume=True)
    assert file.read_bytes() == before


def test_another_runs_merges_are_refused(text, tmp_path):
    train.train(text, tmp_path, replace(SMALL, steps=1))
    Tokenizer([]).save(tmp_path / "merges.txt")
    with pytest.raises(ValueError, match="merges.txt has 257 tokens, the model"):
        train.train(text, tmp_path, SMALL, resume=True)


@pytest.mark.parametrize("layout", [Layout(), Layout(dp=2)])
def test_a_finished_run_can_be_resumed_under_a_layout(text, tmp_path, layout):
    settings = replace(SMALL, steps=1, batch=2)
    done = train.train(text, tmp_path, settings)
    again = train.train(text, tmp_path, settings, resume=True, layout=layout)
    assert again["losses"] == done["losses"] and len(again["ranks"]) == layout.dp


def test_a_text_shorter_than_the_context_is_a_clear_error(tmp_path, text):
    with pytest.raises(
        ValueError, match="the text has .* tokens: a window of n_ctx = 5000 needs 5001"
    ):
        train.train(text[:600], tmp_path, replace(SMALL, n_vocab=258, n_ctx=5000))
    assert not (tmp_path / "train.safetensors").exists()


def full_disk(monkeypatch, when):
    """From now on the disk is full: at fsync, or at a write."""
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if when == "fsync":

        def fsync(fd):
            raise error

        monkeypatch.setattr(checkpoint.os, "fsync", fsync)
        return

    class Full:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(bytes(memoryview(data).cast("B"))[:10])
            raise error

    replacing = checkpoint.replacing

    import contextlib

    @contextlib.contextmanager
    def wrapped(path):
        with replacing(path) as file:
            yield Full(file)

    monkeypatch.setattr(checkpoint, "replacing", wrapped)


@pytest.mark.parametrize("when", ["fsync", "write"])
def test_a_full_disk_leaves_the_last_good_state_and_no_litter(text, tmp_path, monkeypatch, when):
    whole = train.train(text, tmp_path / "a", SMALL)["losses"]
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        with pytest.raises(Stop):
            train.train(text, tmp_path / "b", SMALL, save_every=5)
    before = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert before.keys() == {"train.safetensors", "merges.txt"}
    with monkeypatch.context() as patch:
        full_disk(patch, when)
        with pytest.raises(OSError, match="No space left.*train.safetensors"):
            train.train(text, tmp_path / "b", SMALL, resume=True)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert train.train(text, tmp_path / "b", SMALL, resume=True)["losses"] == whole


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_state_is_not_mapped_when_it_is_replaced(text, tmp_path, monkeypatch):
    """Windows replaces no file that is mapped."""
    train.train(text, tmp_path, replace(SMALL, steps=3))
    mapped = []

    def spy(path, *args):
        mapped.append(str(path) in Path("/proc/self/maps").read_text(encoding="utf-8"))
        write_safetensors(path, *args)

    monkeypatch.setattr(train, "write_safetensors", spy)
    train.train(text, tmp_path, SMALL, resume=True, save_every=2)
    assert mapped and not any(mapped)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows replaces no open file")
def test_a_save_puts_a_new_file_in_place_and_never_writes_into_the_old_one(text, tmp_path):
    """Else a kill at the wrong moment would leave half a file."""
    train.train(text, tmp_path, replace(SMALL, steps=3))
    with open(tmp_path / "train.safetensors", "rb") as old:
        before = old.read()
        train.train(text, tmp_path, SMALL, resume=True, save_every=2)
        old.seek(0)
        assert old.read() == before != (tmp_path / "train.safetensors").read_bytes()


# Real processes, killed.

COMMAND = [
    sys.executable, "-m", "gpt_numpy", "train",
    "--n-vocab", "280", "--n-embd", "16", "--n-head", "2", "--n-layer", "2", "--n-ctx", "16",
    "--batch", "8", "--steps", "150", "--save-every", "3", "--json",
]  # fmt: skip


def start(text_file, out, *more):
    return subprocess.Popen(
        [*COMMAND, "--text", str(text_file), "--out", str(out), *more], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )  # fmt: skip


def wait_for_state(process, out, more=0.0):
    deadline = time.monotonic() + 30
    while not (out / "train.safetensors").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(more)


@pytest.fixture(scope="module")
def unbroken(text_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken")
    process = start(text_file, out)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out, stdout


def test_json_is_one_object_and_nothing_else_is_on_stdout(unbroken):
    _, stdout = unbroken
    result = json.loads(stdout)
    assert stdout.count("\n") == 1 and len(result["losses"]) == 150
    assert result.keys() >= {"losses", "held_out_loss", "tokens_per_second", "mfu"}


def test_a_run_killed_at_random_moments_and_resumed_equals_the_unbroken_one(
    text_file, unbroken, tmp_path
):
    out, more, kills = tmp_path / "out", [], 0
    rng = np.random.default_rng()  # at another moment every time: a failure shows the delay
    for _ in range(3):
        process = start(text_file, out, *more)
        delay = rng.uniform(0, 0.05)
        wait_for_state(process, out, delay if not more else 0.5 + delay)
        process.kill()
        kills += process.wait() != 0
        process.communicate()
        read_safetensors(out / "train.safetensors")  # whole
        more = ["--resume"]
    process = start(text_file, out, "--resume")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0 and kills, stderr
    assert json.loads(stdout)["losses"] == json.loads(unbroken[1])["losses"], delay
    for file in ("train.safetensors", "model.safetensors"):
        assert (out / file).read_bytes() == (unbroken[0] / file).read_bytes(), delay


KILLED_WHILE_SAVING = """
import os, signal, sys
from gpt_numpy import checkpoint
from gpt_numpy.__main__ import main
real, saves = os.fsync, []

def fsync(fd):
    saves.append(fd)
    if len(saves) == 3:
        os.ftruncate(fd, 1000) if hasattr(os, "ftruncate") else None
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    real(fd)

os.fsync = fsync
main(sys.argv[1:])
"""


def test_a_run_killed_while_saving_keeps_the_last_good_state(text_file, unbroken, tmp_path):
    out = tmp_path / "out"
    arguments = [*COMMAND[3:], "--text", str(text_file), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, *arguments], cwd=ROOT, capture_output=True
    )
    assert done.returncode != 0
    assert len(tensors(out)["losses"]) == 3  # of the second save, after the one before any step
    process = start(text_file, out, "--resume")
    stdout, _ = process.communicate(timeout=60)
    assert json.loads(stdout)["losses"] == json.loads(unbroken[1])["losses"]
    unbroken_model = (unbroken[0] / "model.safetensors").read_bytes()
    assert (out / "model.safetensors").read_bytes() == unbroken_model


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
def test_ctrl_c_ends_with_one_line_and_the_run_can_be_resumed(text_file, tmp_path):
    out = tmp_path / "out"
    process = start(text_file, out, "--steps", "100000")
    wait_for_state(process, out, 0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130 and stdout == ""
    assert stderr.rstrip().splitlines()[-1] == "interrupted" and "Traceback" not in stderr
    done = len(tensors(out)["losses"])
    assert (
        done and json.loads(read_metadata(out / "train.safetensors")["settings"])["n_embd"] == 16
    )
    process = start(text_file, out, "--resume", "--steps", str(done + 2))
    stdout, _ = process.communicate(timeout=60)
    assert len(json.loads(stdout)["losses"]) == done + 2
