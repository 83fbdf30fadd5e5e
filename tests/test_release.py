"""The student's copy says what it is, and its tour goes on where an exercise is missing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lessons
from lessons import cells
from lessons.__main__ import main

ROOT = Path(lessons.__file__).resolve().parents[1]
ROW = re.compile(r"^\| \d+ \| .*$", re.MULTILINE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("student") / "copy"
    assert main(["release", str(folder)]) == 0
    return folder


def run(copy, *words):
    env = os.environ | {"PYTHONPATH": str(copy), "PYTHONIOENCODING": "ascii"}
    return subprocess.run([sys.executable, "-m", *words], cwd=copy, env=env, timeout=120,
                          capture_output=True, encoding="utf-8")  # fmt: skip


def test_release_says_what_it_leaves_in(tmp_path, capsys):
    assert main(["release", str(tmp_path / "copy")]) == 0
    out = capsys.readouterr().out
    assert "answers lessons 1 to 6\ncan still be found in the package itself" in out
    whole = (tmp_path / "copy" / "README.md").read_text(encoding="utf-8")
    assert out.splitlines()[0] in whole


def test_the_copys_readme_lists_the_lessons_and_leads_somewhere(copy):
    text = (copy / "README.md").read_text(encoding="utf-8")
    assert ROW.findall(text) == ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert (copy / target).exists(), target
    assert not (copy / "tests" / "test_readme.py").exists()  # which is of the other README
    assert "lessons page" not in text and "lessons release" not in text  # the teacher's


def test_the_copys_readme_names_what_was_taken_out(copy):
    rows = re.findall(
        r"^\| \[lesson (\d+)\]\(lessons/(\w+)/exercise.py\): `(\w+)` \| `([\w.]+)` \|$",
        (copy / "README.md").read_text(encoding="utf-8"), re.MULTILINE)  # fmt: skip
    taken = [
        (str(int(lesson[:2])), lesson, exercise, f"gpt_numpy.parallel.{path.stem}.{name}")
        for path in (copy / "gpt_numpy" / "parallel").glob("*.py")
        for name, lesson, exercise in re.findall(
            r'^(\w+) = taught\("(\w+)", "(\w+)"\)$', path.read_text(encoding="utf-8"), re.M)
    ]  # fmt: skip
    assert sorted(rows) == sorted(taken)
    assert {int(number) for number, *_ in rows} == {7, 8, 9, 10, 11}  # as its prose says


def test_the_readmes_training_names_the_missing_exercise(copy, tmp_path):
    text = (copy / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
    (words,) = re.findall(r"^python -m (gpt_numpy train .*)$", text, re.MULTILINE)
    done = run(copy, *words.replace("OUT", str(tmp_path / "out")).split())
    last = done.stderr.splitlines()[-1]
    assert done.returncode and re.search(r"lesson \d+'s exercise \w+ is not solved yet", last)
    assert "Traceback" not in done.stderr


def test_the_copys_tour_goes_on_where_an_exercise_is_missing(copy):
    done = run(copy, "lessons", "tour")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    parts = done.stdout.split("---\n")
    assert [part.count("is not solved yet") for part in parts] == [0, 0, 0, 1, 1, 1]
    assert "Mrs. Bennet, and" in parts[0] and "equal to NumPy's: True" in parts[1]
    assert "12,288" in parts[5]


def test_the_copys_tour_has_the_same_prose_and_code(copy):
    whole, copied = (cells.read(root / "lessons" / "tour.py") for root in (ROOT, copy))
    for there, here in zip(whole, copied, strict=True):
        lines = [line.strip() for line in there.text.splitlines()]
        found = [line.strip() for line in here.text.splitlines()]
        extra = [line for line in found if line and line not in lines]
        assert [line for line in found if line not in extra][: len(lines)] == lines
        assert all("say_unsolved" in line for line in extra)
        assert there.kind == here.kind
