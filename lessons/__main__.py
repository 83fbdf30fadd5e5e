"""`python -m lessons`: list, run, present, check, render and hand out the lessons."""

import argparse
import os
import sys
from pathlib import Path

from lessons import cells, grade, page
from lessons import release as copy

USAGE = """python -m lessons                 the list
       python -m lessons tour            what there is to see, in half a minute
       python -m lessons 6 [--step]      run a lesson; or go through it with a class
       python -m lessons check 6 [--target FILE]   what passes of its exercises
       python -m lessons render [6]      write the README.md pages
       python -m lessons page FILE.html  all lessons as one page
       python -m lessons release FOLDER  a student's copy, without solutions"""


def run(what, argument, step, target):
    if what is None:
        for lesson in cells.find_lessons():
            print(f"{lesson.number:2}  {lesson.minutes} min  {lesson.title}")
    elif what == "tour":
        cells.show(cells.LESSONS / "tour.py")
    elif what == "check" and argument:
        results = grade.grade(cells.find_lesson(argument).folder, target)
        print(grade.report(results))
        return int(any(result.status != "passed" for result in results))
    elif what == "check":
        raise ValueError("check which lesson? python -m lessons check 6")
    elif what == "render":
        for lesson in [cells.find_lesson(argument)] if argument else cells.find_lessons():
            page.write(lesson)
            print(lesson.folder / "README.md")
    elif what == "page" and argument:
        Path(argument).write_text(page.html_page(), encoding="utf-8", newline="\n")
    elif what == "release" and argument:
        copy.release(argument)
        print(f"the student's copy is in {argument}")
    elif argument:
        raise ValueError(f"what is {what} {argument}?\nusage: {USAGE}")
    else:
        (cells.step if step else cells.show)(cells.find_lesson(what).folder / "lesson.py")
    return 0


def main(argv=None):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a console that lacks a character prints "?"
    parser = argparse.ArgumentParser(prog="python -m lessons", usage=USAGE)
    parser.add_argument("what", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("argument", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--step", action="store_true", help="wait after each cell")
    parser.add_argument(
        "--target", metavar="FILE", help="the answers to check, if not the lesson's exercise.py"
    )
    try:
        return run(**vars(parser.parse_args(argv)))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
