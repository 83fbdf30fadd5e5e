"""The student's copy: without solutions, and with exercises in place of what they teach."""

import ast
import re
import shutil
import textwrap
from pathlib import Path

from lessons.cells import LESSONS, find_lessons, read

ROOT = LESSONS.parent
COPIED = (
    "gpt_numpy",
    "lessons",
    "tests",
    "requirements.txt",
    ".pytest.ini",
    ".gitattributes",
    ".gitignore",
    ".ruff.toml",
)
HIDDEN = ("solution.py", "wrong", "accept", "__pycache__", ".ruff_cache")
HIDDEN += ("test_readme.py", "test_release.py")  # of what only the whole project has
LEFT = """\
Only the parallel strategies that lessons 7 to 11 teach are taken out. What answers lessons 1 to 6
can still be found in the package itself: gpt_numpy's tokenizer, gpt2, sample, flops, layers, mesh
and cost; so can parts of the later ones."""
README = """\
# gpt_numpy: a student's copy

How large language models are split over thousands of GPUs, learnt by running the split on a
laptop: GPT-2 in plain NumPy, on simulated devices that meter every FLOP, byte and second. Its
thirteen lessons have exercises; some of what they ask for is missing from the package, which takes
it from your files instead.

```sh
pip install -r requirements.txt
python -m lessons tour      # what there is to see; more of it, the more you have solved
python -m lessons 8         # run a lesson
python -m lessons check 8   # check your answers, in lessons/08_*/exercise.py
python -m pytest            # all tests; those that need an unsolved exercise are skipped
```

## Lessons

Each page has the lesson's whole output. Run here, a lesson stops where it needs an exercise that
is not solved yet, its own or a later one's, and says which.

| | lesson | to read |
| --- | --- | --- |
{lessons}

## What runs on your code

| exercise of | becomes |
| --- | --- |
{taught}

Once lessons 7 to 11 pass, this trains on your code; until then it says which exercise is missing:

```sh
python -m gpt_numpy train --dp 2 --pp 2 --tp 2 --zero 1 --sequence-parallel --n-layer 4 \\
    --micro-batch 2 --steps 20 --text gpt_numpy/tiny/held_out.txt --out OUT
```

Training on one device, `simulate`, `megascale` and `published` may ask for some of it as well.

## Where answers can be found

{left} Try first, then compare.
{rooms}"""
CONFTEST = '''"""A test that needs an unsolved exercise is skipped, and says which one."""

import os
import tempfile
from pathlib import Path

import pytest

FOLDER = tempfile.TemporaryDirectory()
LOG = Path(FOLDER.name) / "log"
LOG.touch()
os.environ["UNSOLVED_LOG"] = str(LOG)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.before = LOG.stat().st_size
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    lines = LOG.read_text(encoding="utf-8").splitlines()
    asked = LOG.stat().st_size > item.before or "is not solved yet" in report.longreprtext
    if report.failed and lines and asked:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: " + lines[-1])
    return report
'''


def find_taught(lessons=LESSONS):
    """{module: {function: (lesson, exercise)}}, by each exercise.py's TEACHES.

    TEACHES = {exercise: "gpt_numpy.parallel.module.function"}
    """
    found = {}
    for path in sorted(lessons.glob("[0-9][0-9]_*/exercise.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TEACHES":
                for exercise, target in ast.literal_eval(node.value).items():
                    module, _, name = target.rpartition(".")
                    found.setdefault(module, {})[name] = (path.parent.name, exercise)
    return found


def take_out(source, taught):
    """A module's source with the functions {name: (lesson, exercise)} taken from the exercises.

    >>> source = "import numpy\\n\\ndef f(x):\\n    return 2 * x\\n"
    >>> print(take_out(source, {"f": ("08_a", "f")}), end="")
    from gpt_numpy.parallel.taught import taught
    import numpy
    <BLANKLINE>
    f = taught("08_a", "f")
    """
    lines, body = source.splitlines(keepends=True), ast.parse(source).body
    found = [node for node in body if getattr(node, "name", None) in taught]
    missing = taught.keys() - {node.name for node in found}
    if missing:
        raise ValueError(f"exercises teach {', '.join(sorted(missing))}, which is not there")
    for node in reversed(found):
        start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        lesson, exercise = taught[node.name]
        lines[start - 1 : node.end_lineno] = [f'{node.name} = taught("{lesson}", "{exercise}")\n']
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    first = next(node.lineno for node in imports if getattr(node, "module", "") != "__future__")
    lines.insert(first - 1, "from gpt_numpy.parallel.taught import taught\n")
    return "".join(lines)


def readme(root):
    """The copy's README.md: the lessons, what they teach, and the whole project's map of rooms."""
    lessons = "\n".join(
        f"| {x.number} | [{x.title}](lessons/{x.folder.name}/README.md) | {x.minutes} min |"
        for x in find_lessons(root / "lessons")
    )
    taught = "\n".join(
        f"| [lesson {int(lesson[:2])}](lessons/{lesson}/exercise.py): `{exercise}` "
        f"| `{module}.{name}` |"
        for module, functions in find_taught(root / "lessons").items()
        for name, (lesson, exercise) in functions.items()
    )
    whole = (ROOT / "README.md").read_text(encoding="utf-8")
    rooms = re.search(r"\n## Rooms\n.*?\n(?=\n## )", whole, re.DOTALL)[0]
    return README.format(lessons=lessons, taught=taught, left=LEFT, rooms=rooms)


def go_on(cells):
    """A file of these cells, of which those that need an unsolved exercise print which one."""
    text = ""
    for i, (kind, body, _) in enumerate(cells):
        if kind == "markdown":
            body = "\n".join(f"# {line}".rstrip() for line in body.splitlines())
        elif "import" in body.split():  # names for all of the cells
            body = "from gpt_numpy.parallel.taught import say_unsolved\n" + body
        else:
            body = "with say_unsolved():\n" + textwrap.indent(body, "    ")
        text += "\n" * (i > 0) + "# %%" + " [markdown]" * (kind == "markdown") + f"\n{body}\n"
    return text


def release(folder, root=ROOT):
    """Write the student's copy of the project into a new folder."""
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder")
    if not (root / "lessons" / "taught.py").exists():
        raise ValueError("this is a student's copy already: release from the whole project")
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns(*HIDDEN))
        elif (root / name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, folder / name)
    for module, functions in find_taught(root / "lessons").items():
        path = folder / (module.replace(".", "/") + ".py")
        source = take_out(path.read_text(encoding="utf-8"), functions)
        path.write_text(source, encoding="utf-8", newline="\n")
    tour = go_on(read(root / "lessons" / "tour.py"))
    for name, text in {"README.md": readme(root), "lessons/tour.py": tour}.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    shutil.move(folder / "lessons" / "taught.py", folder / "gpt_numpy" / "parallel" / "taught.py")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8", newline="\n")
    print(LEFT)
