"""Every command of the README prints what stands below it, and every link leads somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lessons.cells import find_lessons

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", README, re.M | re.S)


def follows(expected, lines):
    """Whether the lines are the expected ones; "..." stands for any lines in between."""
    parts = [part.splitlines() for part in re.split(r"^\.\.\.\n", expected, flags=re.M)]
    place = 0
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        starts = [place] if i == 0 else range(place, len(lines) - len(part) + 1)
        if last and len(part):
            starts = [len(lines) - len(part)] if i else [0]
        place = next((s + len(part) for s in starts if lines[s : s + len(part)] == part), None)
        if place is None:
            return False
    return place == len(lines) or expected.endswith("...\n")


def test_dots_stand_for_lines():
    assert follows("a\n...\nd\n", ["a", "b", "c", "d"]) and follows("a\n", ["a"])
    assert follows("...\nb\nc\n...\n", ["a", "b", "c", "d"])
    assert not follows("a\nc\n", ["a", "b", "c"]) and not follows("a\n...\ne\n", ["a", "d"])
    assert not follows("a\n", ["a", "b"]) and not follows("...\nb\nd\n...\n", ["a", "b", "c", "d"])


@pytest.mark.parametrize("command, expected", CONSOLE, ids=[c.split(" --")[0] for c, _ in CONSOLE])
def test_a_command_prints_what_is_shown(command, expected, tmp_path):
    python, *words = shlex.split(command)
    assert python == "python"
    words = [str(tmp_path / "out") if word == "OUT" else word for word in words]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True,
                          encoding="utf-8", timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert follows("".join(f"{line.rstrip()}\n" for line in expected.splitlines()), lines), (
        done.stdout
    )


def test_the_python_example_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    names = {}
    exec(code, names)
    assert names["logits"].shape == (3, 1024)


def test_the_lessons_are_listed():
    rows = [
        f"| {lesson.number} | [{lesson.title}](lessons/{lesson.folder.name}/README.md) "
        f"| {lesson.minutes} min |"
        for lesson in find_lessons()
    ]
    assert re.findall(r"^\| \d+ \| .*$", README, re.M) == rows


PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/*/README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S))
    for target in targets:
        if not re.match(r"https?:|#", target):
            assert (page.parent / target.split("#")[0]).exists(), target
    for anchor in [target[1:] for target in targets if target.startswith("#")]:
        headings = re.findall(r"^#+ (.*)$", text, re.M)
        assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
