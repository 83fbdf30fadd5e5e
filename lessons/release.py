"""The student's copy: without solutions, and with exercises in place of what they teach."""

import ast
import shutil
from pathlib import Path

from lessons.cells import LESSONS

ROOT = LESSONS.parent
COPIED = (
    "gpt_numpy",
    "lessons",
    "tests",
    "README.md",
    "requirements.txt",
    ".pytest.ini",
    ".gitattributes",
    ".gitignore",
    ".ruff.toml",
)
HIDDEN = ("solution.py", "wrong", "accept", "__pycache__", ".ruff_cache")
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
    shutil.move(folder / "lessons" / "taught.py", folder / "gpt_numpy" / "parallel" / "taught.py")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8", newline="\n")
