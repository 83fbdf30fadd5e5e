"""The same training over real processes; without MPI these tests say so and are left out."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpt_numpy.mpi import number

ROOT = Path(__file__).parent.parent
SCRIPTS = Path(sys.executable).parent
MPIEXEC = shutil.which("mpiexec", path=str(SCRIPTS)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    not MPIEXEC or not find_spec("mpi4py"), reason="no MPI here: pip install mpi4py mpich"
)
SIZES = ["--n-vocab", "280", "--n-embd", "16", "--n-head", "4", "--n-layer", "4", "--n-ctx", "8",
         "--steps", "3", "--batch", "8", "--micro-batch", "2", "--dtype", "float64"]  # fmt: skip
SPLIT = ["--dp", "2", "--pp", "2", "--tp", "2"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("mpi") / "text.txt"
    path.write_text("The cat sat on the mat, and the dog sat by the door. " * 60, encoding="utf-8")
    return path


def train(text, out, *options, ranks=None):
    command = [sys.executable, "-m", "gpt_numpy", "train", "--text", str(text), "--out", str(out)]
    if ranks:
        command = [MPIEXEC, "-n", str(ranks), *command, "--mpi"]
    return subprocess.run([*command, *SIZES, *options], cwd=ROOT, capture_output=True,
                          text=True, encoding="utf-8", timeout=120)  # fmt: skip


@needs_mpi
@pytest.mark.parametrize("options", [
    [], ["--zero", "3", "--sequence-parallel", "--recompute", "full"],
    ["--schedule", "interleaved", "--virtual-stages", "2", "--zero", "1", "--optimizer", "lamb"],
])  # fmt: skip
def test_losses_meters_and_weights_are_those_of_the_simulated_run(options, text, tmp_path):
    simulated = train(text, tmp_path / "simulated", *SPLIT, *options, "--json")
    real = train(text, tmp_path / "real", *SPLIT, *options, "--json", ranks=8)
    assert real.returncode == simulated.returncode == 0, real.stderr
    real, simulated = json.loads(real.stdout), json.loads(simulated.stdout)
    assert real["losses"] == pytest.approx(simulated["losses"], abs=1e-12)
    for mine, other in zip(real["ranks"], simulated["ranks"], strict=True):
        assert mine["sent_bytes"] == other["sent_bytes"]
        assert mine["matmul_flops"] == other["matmul_flops"]


@needs_mpi
def test_a_checkpoint_of_real_processes_goes_on_in_one(text, tmp_path):
    unbroken = train(text, tmp_path / "one", "--json")
    first = train(text, tmp_path / "real", "--dp", "2", "--zero", "2", "--steps", "2", ranks=2)
    assert first.returncode == 0, first.stderr
    rest = train(text, tmp_path / "real", "--resume", "--json")
    assert rest.returncode == 0, rest.stderr
    losses = json.loads(rest.stdout)["losses"]
    assert losses == pytest.approx(json.loads(unbroken.stdout)["losses"], abs=1e-12)


@needs_mpi
@pytest.mark.parametrize("options, ranks, message", [
    (["--dp", "2"], 3, "dp x pp x tp is 2, but MPI has 3 processes: mpiexec -n 2"),
    (["--dp", "2", "--n-ctx", "5000"], 2, "needs 5001 at least"),
])  # fmt: skip
def test_a_mistake_ends_all_processes_with_its_message(options, ranks, message, text, tmp_path):
    done = train(text, tmp_path / "out", *options, ranks=ranks)
    assert done.returncode != 0 and message in done.stderr and "Traceback" not in done.stderr


@needs_mpi
def test_a_rank_that_fails_ends_the_others_who_wait_for_it(text, tmp_path):
    program = (
        "import sys; from gpt_numpy import __main__, train\n"
        "from gpt_numpy import mpi\n"
        "step = train.Model.step\n"
        "def fails(self, *args):\n"
        "    if self.rank.rank == 1 and self.optimizer.t == 1:\n"
        "        raise RuntimeError('a cosmic ray')\n"
        "    return step(self, *args)\n"
        "train.Model.step = fails\n"
        "sys.exit(__main__.main(sys.argv[1:]))\n"
    )
    arguments = ["train", "--text", str(text), "--out", str(tmp_path / "o"), *SIZES, "--dp", "2"]
    command = [MPIEXEC, "-n", "2", sys.executable, "-c", program, *arguments, "--mpi"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60,
                          encoding="utf-8")  # fmt: skip
    assert done.returncode != 0 and "a cosmic ray" in done.stderr


def program(code, ranks, *arguments):
    """Run code that ends with calling mpi.run, in so many processes."""
    head = "import sys, numpy as np; from gpt_numpy import mpi; from gpt_numpy.mesh import Mesh\n"
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-c", head + code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60,
                          encoding="utf-8")  # fmt: skip


@needs_mpi
def test_receives_from_one_rank_get_its_messages_in_their_order():
    done = program(
        "def swap(rank):\n"
        "    for _ in range(200):\n"
        "        if rank.rank == 0:\n"
        "            sends = [rank.world.isend(np.array([i]), 1) for i in range(3)]\n"
        "            for work in sends: work.wait()\n"
        "        else:\n"
        "            got = [rank.world.irecv(0) for _ in range(3)]\n"
        "            got = [int(work.wait()[0]) for work in reversed(got)]\n"
        "            assert got == [2, 1, 0], got\n"
        "mpi.run(swap, Mesh(tp=2))\n",
        2,
    )
    assert done.returncode == 0, done.stderr


@needs_mpi
@pytest.mark.parametrize("fails, said", [("1 / 0", "ZeroDivisionError"),
                                         ("raise ValueError('no such thing')", "no such thing")])
def test_a_program_that_raises_on_one_rank_ends_all(fails, said):
    done = program(
        "def wait(rank):\n"
        f"    if rank.rank == 1: {fails}\n"
        "    return rank.world.all_reduce(np.ones(3))\n"
        "mpi.run(wait, Mesh(tp=2))\n",
        2,
    )
    assert done.returncode != 0 and said in done.stderr


@needs_mpi
def test_a_wait_without_end_is_given_up():
    done = program(
        "mpi.PATIENCE = 1.0\n"
        "mpi.run(lambda rank: rank.world.recv(0) if rank.rank else None, Mesh(tp=2))\n", 2
    )
    assert done.returncode != 0 and "receive from rank 0 (world) after 1 s" in done.stderr


def test_without_mpi_one_line_says_how_to_install_it(text, tmp_path):
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from gpt_numpy import __main__; sys.exit(__main__.main(sys.argv[1:]))\n"
    )
    arguments = ["train", "--text", str(text), "--out", str(tmp_path / "o"), *SIZES, "--mpi"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, timeout=60,
                          capture_output=True, text=True, encoding="utf-8")  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "pip install mpi4py mpich" in done.stderr


def test_tags_are_numbers_that_every_mpi_has():
    tags = ["forward", "backward", "tied", "all_reduce", "all_gather", "reduce_scatter", None]
    numbers = [number(tag) for tag in tags]
    assert len(set(numbers)) == len(tags) and max(numbers) < 32768
