"""A lesson is a file of cells (`# %%`, as jupytext knows them): find, read and run them."""

import contextlib
import io
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

LESSONS = Path(__file__).parent
WRAP = {"subsequent_indent": "    ", "break_on_hyphens": False}


class Cell(NamedTuple):
    kind: str  # markdown or code
    text: str
    line: int  # where the text begins in its file


class Lesson(NamedTuple):
    number: int
    folder: Path
    title: str
    minutes: int


def read(path):
    """The cells of a file.

    >>> [cell.kind for cell in read(LESSONS / "tour.py")][:2]
    ['markdown', 'code']
    """
    cells = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# %%"):
            cells.append(("markdown" if "[markdown]" in line else "code", number + 1, []))
        elif cells:
            cells[-1][2].append(line)
        elif line.strip():
            raise ValueError(
                f"{path}, line {number}: nothing can stand before the first # %% cell"
            )
    found = []
    for kind, start, lines in cells:
        if kind == "markdown":
            if odd := [line for line in lines if line and not re.match(r"#( |$)", line)]:
                raise ValueError(
                    f"{path}: in a markdown cell every line begins with '# ', not {odd[0]!r}"
                )
            lines = [line[2:] for line in lines]
        while lines and not lines[0]:
            start, lines = start + 1, lines[1:]
        found.append(Cell(kind, "\n".join(lines).rstrip(), start))
    return found


def find_lessons(folder=LESSONS):
    lessons = []
    for path in sorted(folder.glob("[0-9][0-9]_*/lesson.py")):
        head = read(path)[0].text
        title, minutes = re.match(r"# \d+\. (.+)", head), re.search(r"(\d+) minutes", head)
        if not title or not minutes:
            raise ValueError(f"{path}: the first cell has to say '# 6. Title' and '30 minutes'")
        lessons.append(Lesson(int(path.parent.name[:2]), path.parent, title[1], int(minutes[1])))
    return lessons


def find_lesson(number):
    lessons = {lesson.number: lesson for lesson in find_lessons()}
    if not number.isdecimal() or int(number) not in lessons:
        raise ValueError(
            f"there is no lesson {number!r}: choose one of {', '.join(map(str, lessons))}"
        )
    return lessons[int(number)]


def play(path, echo=False):
    """Run a file of cells: yields each cell before it runs, then what it printed.

    With echo it prints at once, and yields "".
    """
    namespace, search = {"__name__": "__main__", "__file__": str(path)}, sys.path[:]
    sys.path.insert(0, str(Path(path).parent))  # as Python does for a script
    try:
        for cell in read(path):
            yield cell
            printed = io.StringIO()
            if cell.kind == "code":
                code = compile(
                    "\n" * (cell.line - 1) + cell.text, str(path), "exec", dont_inherit=True
                )
                with contextlib.nullcontext() if echo else contextlib.redirect_stdout(printed):
                    exec(code, namespace)
            yield printed.getvalue()
    finally:
        sys.path[:] = search  # a lesson adds the folder that the package is in


def plain(text):
    """Markdown for a terminal: links without their targets.

    >>> plain("see [mesh.py](../../gpt_numpy/mesh.py)")
    'see mesh.py'
    """
    return re.sub(r"!?\[([^\]]+)\]\([^)]+\)", r"\1", text)


def show(path):
    """Run it: prose and output."""
    steps = play(path, echo=True)
    for cell in steps:
        if cell.kind == "markdown":
            print(f"\n{plain(cell.text)}\n")
        next(steps)


def screens(path):
    """What a class sees, one after another: prose, then code, then its output."""
    steps = play(path)
    for cell in steps:
        bar = "" if cell.kind == "markdown" else "| "
        yield "\n".join((bar + line).rstrip() for line in plain(cell.text).splitlines())
        lines = next(steps).splitlines()
        if lines:
            yield "\n".join(textwrap.fill(x, 98, **WRAP) if len(x) > 98 else x for x in lines)


def step(path):
    """Presenter's mode. Where input ends (no terminal), it goes on to the end without waiting."""
    source, seen, at, waiting = screens(path), [], 0, True
    while True:
        if at == len(seen):
            if (screen := next(source, None)) is None:
                return
            seen.append(screen)
        print(f"\n{seen[at]}\n")
        answer = ""
        if waiting:
            try:
                answer = input(
                    "-- Enter: next, b: back, q: quit " if sys.stdin.isatty() else ""
                ).strip()
            except EOFError:
                waiting = False
        if answer == "q":
            return
        at = max(0, at - 1) if answer == "b" else at + 1
