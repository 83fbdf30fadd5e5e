"""`pytest lessons/06_devices [--target=FILE]` grades answers, by default that exercise.py."""

import pytest

from lessons.cells import LESSONS
from lessons.grade import exercise_of, find_checks, grade


def pytest_addoption(parser):
    parser.addoption("--target", metavar="FILE", help="the answers that a lesson's checks grade")


def pytest_ignore_collect(collection_path, config):
    """Of the lessons only checks are collected, and only where a lesson is asked for."""
    if LESSONS not in collection_path.parents or collection_path.suffix != ".py":
        return None
    asked = [(config.invocation_params.dir / arg.split("::")[0]).resolve() for arg in config.args]
    named = config.args_source is config.ArgsSource.ARGS
    named = named and any(LESSONS in (path, *path.parents) for path in asked)
    return collection_path.name != "check.py" or not named


def pytest_collect_file(file_path, parent):
    if file_path.name == "check.py" and file_path.parent.parent == LESSONS:
        return CheckFile.from_parent(parent, path=file_path)
    return None


class CheckFile(pytest.File):
    def collect(self):
        self.results = {}
        for name, check in find_checks(self.path.parent).items():
            yield CheckItem.from_parent(self, name=name, exercise=exercise_of(check))


class CheckItem(pytest.Item):
    def __init__(self, *, exercise, **how):
        super().__init__(**how)
        self.exercise = exercise

    def runtest(self):
        results = self.parent.results
        if not results:  # one process for all of the lesson's checks
            names = [item.name for item in self.session.items if item.parent is self.parent]
            target = self.config.getoption("target")
            path = target and self.config.invocation_params.dir / target
            results |= {result.check: result for result in grade(self.path.parent, path, names)}
        result = results[self.name]
        if result.printed:
            self.add_report_section("call", "stdout", result.printed)
        if result.status != "passed":
            raise Wrong(result.message)

    def repr_failure(self, excinfo):
        return (
            str(excinfo.value)
            if isinstance(excinfo.value, (Wrong, ValueError))
            else super().repr_failure(excinfo)
        )

    def reportinfo(self):
        return self.path, None, f"{self.exercise}: {self.name}"


class Wrong(Exception):
    """A check's verdict: a line."""
