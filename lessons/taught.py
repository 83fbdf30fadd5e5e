"""In a student's copy: functions of this package that come from the student's own exercise files.

`python -m lessons release` puts this file into gpt_numpy/parallel.
"""

import contextlib
import functools
import importlib.util
import os
from pathlib import Path

LESSONS = Path(__file__).parents[2] / "lessons"


class Unsolved(ValueError):
    """An exercise is needed that is not solved yet."""


@contextlib.contextmanager
def say_unsolved():
    """Where an exercise is needed that is not solved yet, say so, and go on after the block."""
    try:
        yield
    except Unsolved as error:
        print(error)


@functools.cache
def exercises(lesson):
    path = LESSONS / lesson / "exercise.py"
    spec = importlib.util.spec_from_file_location(f"{lesson}.exercise", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def taught(lesson, name):
    """The student's function of that name."""

    def function(*args, **options):
        try:
            return getattr(exercises(lesson), name)(*args, **options)
        except NotImplementedError as error:
            number = int(lesson[:2])
            text = (
                f"lesson {number}'s exercise {name} is not solved yet, but needed: solve it in "
                f"lessons/{lesson}/exercise.py; python -m lessons check {number} says what passes"
            )
            if os.environ.get("UNSOLVED_LOG"):  # the copy's tests ask why one of them failed
                with open(os.environ["UNSOLVED_LOG"], "a", encoding="utf-8") as log:
                    log.write(text + "\n")
            raise Unsolved(text) from error

    return function
