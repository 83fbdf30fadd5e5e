"""Grading: each check of a lesson on somebody's answers, and what came of it in one line.

`check.py` holds functions check_<what>(exercise, ...): their arguments' names say which answers
they get, and the first one which exercise they belong to. Answers run in a process of their own,
which is killed when a check takes too long: nothing that they do (endless loops, exits, floods of
print) harms the report.
"""

import contextlib
import importlib.util
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

LIMIT = 5  # seconds for each check
MISSING = "there is no function"
ROOT = Path(__file__).parents[1]


class Result(NamedTuple):
    check: str
    exercise: str
    status: (
        str  # passed, failed: a check says no, unsolved: NotImplementedError, error: anything else
    )
    message: str = ""
    printed: str = ""


def load(path):
    """The module of a file, whose folder's name need not be one."""
    path = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}.{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_checks(folder):
    """{name: function} of a lesson's checks."""
    return {
        name: f for name, f in vars(load(folder / "check.py")).items() if name.startswith("check_")
    }


def exercise_of(check):
    return next(iter(inspect.signature(check).parameters))


def one_line(error, path):
    """An error in a line, with the place in the file where it arose."""
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or path).name}, line {error.lineno}"
        line = f": {error.text.strip()}" if error.text else ""
        return f"{type(error).__name__}: {error.msg} ({where}{line})"
    if isinstance(error, SystemExit):
        return "it calls exit: a function has to return"
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line]
    text = "; ".join(lines).replace(":;", ":")
    text = f"{text[:600]}..." if len(text) > 600 else text
    if isinstance(error, NotImplementedError) or is_verdict(error, path):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame.lineno for frame in frames if frame.filename == str(path)]
    where = f" ({path.name}, line {places[-1]})" if places else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def is_verdict(error, path):
    """Whether it is a check's assertion, and not one in the answers themselves."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, AssertionError) and last != str(path)


class Printed(io.StringIO):
    """Keeps the first 2,000 characters."""

    def write(self, text):
        return super().write(text[: max(0, 2000 - self.tell())])


def judge(check, path, *modules):
    """Run one check on the answers of the first module that has them; `path` is its file."""
    printed, status, message = Printed(), "passed", ""
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # an overflow is the answer's affair, not an error
            answers = []
            for name in inspect.signature(check).parameters:
                answers.append(next((getattr(m, name) for m in modules if hasattr(m, name)), None))
                if not callable(answers[-1]):
                    raise AssertionError(f"{MISSING} {name} in {path.name}")
            check(*answers)
    except NotImplementedError as error:
        status, message = "unsolved", f"not solved yet: {one_line(error, path)}"
    except BaseException as error:
        status = "failed" if is_verdict(error, path) else "error"
        message = one_line(error, path)
    return Result(check.__name__, exercise_of(check), status, message, printed.getvalue())


def work(folder, path, log, *names):
    """The process in which answers run: a line of JSON in the file `log` for everything done."""
    path = Path(path)
    with open(log, "w", encoding="utf-8") as file:

        def say(*event):
            file.write(json.dumps(event) + "\n")
            file.flush()

        checks = find_checks(Path(folder))
        say("begin")
        try:
            with contextlib.redirect_stdout(Printed()), contextlib.redirect_stderr(Printed()):
                answers = load(path)
        except BaseException as error:
            for name in names:
                say(
                    name,
                    exercise_of(checks[name]),
                    "error",
                    f"{path.name} cannot be read: {one_line(error, path)}",
                    "",
                )
        else:
            say("loaded")
            for name in names:
                say(*judge(checks[name], path, answers))
    os._exit(0)  # whatever threads are left


def watch(folder, path, names):
    """Start that process; yields its events, and at last None or why it ended too soon."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONIOENCODING": "utf-8",
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        log = Path(temporary) / "log"
        log.touch()
        code = "import sys; from lessons.grade import work; work(*sys.argv[1:])"
        process = subprocess.Popen(
            [sys.executable, "-c", code, folder, path, log, *names],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with log.open(encoding="utf-8") as file:
                deadline, rest = time.monotonic() + 60, ""  # for Python and NumPy to start
                while True:
                    ended = (
                        process.poll() is not None
                    )  # asked before reading: what it wrote is then all there
                    rest += file.read()
                    *lines, rest = rest.split("\n")
                    for line in lines:
                        deadline = time.monotonic() + LIMIT
                        yield json.loads(line)
                    if ended:
                        break
                    if time.monotonic() > deadline:
                        yield f"it took longer than {LIMIT} s: does a loop never end?"
                        return
                    time.sleep(0.01)
            yield (
                None
                if process.returncode == 0
                else f"it ended Python (exit code {process.returncode})"
            )
        finally:
            process.kill()
            process.wait()


def grade(folder, path=None, names=None):
    """The results of a lesson's checks, or those named, on answers, by default its exercise.py."""
    folder, path = Path(folder).resolve(), Path(path or Path(folder) / "exercise.py").resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    checks = find_checks(folder)
    left, results, loaded = list(names or checks), [], False
    while left:
        why = None
        for event in watch(folder, path, left):
            if isinstance(event, list) and len(event) > 1:
                results.append(Result(*event))
                left.remove(event[0])
            elif isinstance(event, list):
                loaded = loaded or event == ["loaded"]
            else:
                why = event or "it ended Python"
        for name in (
            left[:1] if loaded else left[:]
        ):  # the rest gets a new process, if the file can be read at all
            message = why if loaded else f"{path.name} cannot be read: {why}"
            results.append(Result(name, exercise_of(checks[name]), "error", message))
            left.remove(name)
    return results


def report(results):
    """What passes, in words."""
    lines = []
    for exercise in dict.fromkeys(result.exercise for result in results):
        of_it = [r for r in results if r.exercise == exercise]
        lines.append(exercise)
        status, message = of_it[0].status, of_it[0].message
        of_no_check = status in ("unsolved", "error") or message.startswith(MISSING)
        if of_no_check and all((r.status, r.message) == (status, message) for r in of_it):
            which = "its only check" if len(of_it) == 1 else f"all {len(of_it)} checks"
            lines.append(f"  FAILS   {which}: {message}")
            continue
        for r in of_it:
            mark = "passes" if r.status == "passed" else "FAILS "
            lines.append(f"  {mark}  {r.check.removeprefix('check_').replace('_', ' ')}")
            if r.message:
                lines.append(f"          {r.message}")
            if r.printed:
                lines.append(
                    "          printed: " + r.printed.rstrip()[:300].replace("\n", "\n          ")
                )
    passed = sum(r.status == "passed" for r in results)
    total = "1 check passes" if len(results) == 1 else f"{len(results)} checks pass"
    return "\n".join([*lines, f"{passed} of {total}"])
