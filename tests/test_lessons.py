"""The lessons run, their pages are fresh, and their checks tell right answers from wrong ones."""

import ast
import doctest
import html.parser
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

import lessons
from gpt_numpy.device import Device, DeviceArray
from gpt_numpy.mesh import Mesh
from lessons import bars, cells, checking, grade, page, release
from lessons.__main__ import main

ROOT = Path(lessons.__file__).resolve().parents[1]
ALL = cells.find_lessons()
SOLVED = [
    x.folder for x in ALL if (x.folder / "solution.py").exists()
]  # none, in a student's copy
STUBS = [x.folder for x in ALL if (x.folder / "exercise.py").exists()]


def names(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda p: f"{p.parent.name}/{p.name}")


def run(*args, cwd=ROOT, env=None, timeout=120, **how):
    env = os.environ | {"PYTHONPATH": str(cwd), "PYTHONIOENCODING": "utf-8"} | (env or {})
    how = {"capture_output": True, "encoding": "utf-8", "stdin": subprocess.DEVNULL} | how
    return subprocess.run(
        [sys.executable, *map(str, args)], cwd=cwd, env=env, timeout=timeout, **how
    )


# ---- the lessons

lesson = pytest.mark.parametrize("lesson", ALL, ids=lambda x: x.folder.name)


@lesson
def test_a_lesson_says_what_it_is_for_and_ends_with_questions(lesson):
    found = cells.read(lesson.folder / "lesson.py")
    head = found[0].text
    assert (
        head.startswith(f"# {lesson.number}. {lesson.title}\n")
        and "After this lesson you can" in head
    )
    assert "gpt_numpy/" in head  # the room that it explains
    last = found[-1].text
    assert (
        last.startswith("## Three questions")
        and len(re.findall(r"^\d\. ", last, re.MULTILINE)) == 3
    )


@lesson
def test_the_page_has_the_lessons_prose_and_code(lesson):
    text, at = (lesson.folder / "README.md").read_text(encoding="utf-8"), 0
    for cell in cells.read(lesson.folder / "lesson.py"):
        at = text.find(cell.text, at)
        assert at >= 0, f"stale: python -m lessons render {lesson.number}\n{cell.text}"


@pytest.mark.slow
@lesson
def test_the_page_is_what_the_lesson_prints(lesson):
    """Runs it as a student does, from another folder; the page has the same output, in ASCII."""
    path = lesson.folder / "lesson.py"
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    strict += ["-W", "ignore::EncodingWarning:regex._main"]  # not ours
    start = time.perf_counter()
    plain = {"PYTHONPATH": "", "PYTHONIOENCODING": "ascii"}
    done = run(*strict, path, cwd=lesson.folder.parent, env=plain)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 60  # 15 on a quiet computer
    files = page.render(lesson)
    for name, text in files.items():
        fresh = (lesson.folder / name).read_text(encoding="utf-8") == text
        assert fresh, f"{name} is stale: python -m lessons render {lesson.number}"
    assert {p.name for p in lesson.folder.glob("*.svg")} == files.keys() - {"README.md"}
    printed = [line for line in done.stdout.splitlines() if not line.startswith("[picture: ")]
    lines = files["README.md"].splitlines()
    assert [line for line in printed if line not in lines] == []


# ---- the exercises


def pieces(x):
    """The arrays in an answer or an argument."""
    found = []
    checking.each(lambda a: found.append(a) or a, x)
    return found


def broken(function, how):
    """A right function with something broken in what it returns, or in its inputs."""

    def answer(*args, **options):
        y = function(*args, **options)
        if how == "None":
            return None
        if how == "input":
            for x in pieces([*args, *options.values()]):
                x[...] = x + x.dtype.type(1)
            return y
        if not pieces(y):  # numbers, or lists of them
            return float("nan") if isinstance(y, float) else str(y)
        return checking.each(BROKEN[how], y)

    return answer


def raw(function):
    """The same for a device array."""

    def on_either(x):
        return x.device.put(function(x.numpy())) if isinstance(x, DeviceArray) else function(x)

    return on_either


BROKEN = {
    "None": None,
    "input": None,
    "list": lambda x: x.numpy().tolist() if isinstance(x, DeviceArray) else x.tolist(),
    "shape": raw(lambda x: x[None]),
    "dtype": raw(lambda x: x.astype(np.float32 if x.dtype != np.float32 else np.float64)),
    "nan": raw(lambda x: x * np.nan),
}


def judge(folder, path, names=None):
    """{check: result} of the checks whose exercise is in the file; the rest is the solution's."""
    checks, answers = grade.find_checks(folder), [grade.load(path)]
    if path.name != "exercise.py":
        answers.append(grade.load(folder / "solution.py"))
    return {
        name: grade.judge(check, path, *answers)
        for name, check in checks.items()
        if hasattr(answers[0], grade.exercise_of(check)) and (names is None or name in names)
    }


@pytest.mark.parametrize("folder", SOLVED, ids=lambda p: p.name)
def test_the_solution_passes_and_the_stub_is_unsolved(folder):
    checks = grade.find_checks(folder)
    right, stub = judge(folder, folder / "solution.py"), judge(folder, folder / "exercise.py")
    assert right.keys() == checks.keys() == stub.keys()
    assert {r for r in right.values() if r.status != "passed"} == set()
    assert {
        r for r in stub.values() if r.status != "unsolved" or "what to do" in r.message
    } == set()
    source = ast.parse((folder / "check.py").read_text(encoding="utf-8"))
    defined = [node.name for node in source.body if getattr(node, "name", "").startswith("check_")]
    assert len(defined) == len(checks), "two checks have the same name"
    assert {grade.exercise_of(check) for check in checks.values()} == page.exercises(folder).keys()


@pytest.mark.parametrize("folder", SOLVED, ids=lambda p: p.name)
def test_checks_do_not_import_what_they_check(folder):
    for name in ("check.py", "exercise.py", "solution.py"):
        text = (folder / name).read_text(encoding="utf-8")
        text = re.sub(r"TEACHES = \{.*?\}", "", text, flags=re.DOTALL)
        assert "gpt_numpy.parallel" not in text


@pytest.mark.parametrize("folder", SOLVED, ids=lambda p: p.name)
def test_examples_in_the_stubs_are_right(folder):
    answers = vars(grade.load(folder / "solution.py"))
    stubs, out = grade.load(folder / "exercise.py"), io.StringIO()
    runner = doctest.DocTestRunner(verbose=False)
    for name in page.exercises(folder):
        stub = getattr(stubs, name)
        assert list(inspect.signature(stub).parameters) == list(
            inspect.signature(answers[name]).parameters
        )
        example = doctest.DocTestParser().get_doctest(
            inspect.getdoc(stub), vars(stubs) | answers, name, None, 0
        )
        assert example.examples, f"{name} has no example"
        runner.run(example, out=out.write)
    assert runner.failures == 0, out.getvalue()


@names([path for folder in SOLVED for path in sorted(folder.glob("wrong/*.py"))])
def test_a_wrong_answer_fails_its_named_check(path):
    first, idea = path.read_text(encoding="utf-8").splitlines()[:2]
    check = first.removeprefix("# caught by: ")
    assert first != check and idea.startswith("# "), (
        "it begins with '# caught by: check_...' and the idea"
    )
    result = judge(path.parents[1], path, [check])[check]
    assert result.status == "failed" and "there is no function" not in result.message, result
    assert "\n" not in result.message and len(result.message) < 700


@names([path for folder in SOLVED for path in sorted(folder.glob("accept/*.py"))])
def test_a_right_answer_that_looks_wrong_passes(path):
    results = judge(path.parents[1], path).values()
    assert results and {r for r in results if r.status != "passed"} == set()


@pytest.mark.parametrize("folder", SOLVED, ids=lambda p: p.name)
def test_each_exercise_has_three_wrong_answers(folder):
    wrong = [page_.read_text(encoding="utf-8") for page_ in folder.glob("wrong/*.py")]
    for name in page.exercises(folder):
        assert (
            sum(bool(re.search(rf"^(def|class) {name}\b", text, re.MULTILINE)) for text in wrong)
            >= 3
        ), name


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("folder", SOLVED, ids=lambda p: p.name)
def test_malformed_answers_are_refused_in_a_line(folder, how):
    """None, a list for an array, a wrong shape or dtype, NaN, a changed input: all are refused."""
    checks, solution = grade.find_checks(folder), grade.load(folder / "solution.py")
    allowed = vars(grade.load(folder / "check.py")).get(
        "MALFORMED_OK", {}
    )  # {exercise: kinds that do not apply}
    for name in page.exercises(folder):
        right = getattr(solution, name)
        if inspect.isclass(right) or how in allowed.get(name, ()):
            continue
        seen = {"arrays": False}

        def answer(*args, right=right, seen=seen, **options):
            y = right(*args, **options)
            seen["arrays"] |= bool(
                pieces([*args, *options.values()]) if how == "input" else pieces(y)
            )
            return broken(lambda *a, **o: y, how)(*args, **options)

        module = type("Answers", (), {name: staticmethod(answer)})
        results = [
            grade.judge(c, folder / "exercise.py", module, solution)
            for c in checks.values()
            if grade.exercise_of(c) == name
        ]
        if how == "input" and not seen["arrays"]:
            continue
        assert any(r.status == "failed" for r in results), (name, results)
        assert not any("\n" in r.message for r in results)


IDEAS = {
    "01_tokenizer/reads_twice": "an id was used twice",
    "01_tokenizer/reads_twice_and_stops_early": "an id was used twice: after a match go on behind "
    "the pair; and the last id is lost",
    "01_tokenizer/pairs_end_before_the_last": "the last id is lost",
    "01_tokenizer/looks_past_the_end": "there is no ids[i + 1] to compare",
    "01_tokenizer/strict_token_by_token": "put the bytes together first",
    "01_tokenizer/strict": "bytes that are no UTF-8 become U+FFFD",
    "06_devices/whole_sum": "one part for each rank",
    "06_devices/all_send_first": "all send first",
    "06_devices/all_receive_first": "all receive first",
    "06_devices/talks_to_itself": "a group of one: return x, there is nobody to send to",
    "06_devices/own_part_only": "one part only: the second half, the all-gather, is missing",
    "06_devices/no_second_half": "complete: the second half, the all-gather, is missing",
    "06_devices/adds_twice": "added again while the finished parts are passed on",
    "06_devices/adds_twice_from_the_part_before": "added again while the finished parts",
    "06_devices/ring_sends_first": "all send first, and send waits until the other side receives: "
    "use isend",
    "06_devices/n_steps": "one step too many",
    "06_devices/gathers_own_number": "these parts were never added up",
    "06_devices/whole_vectors": "96 bytes: rank 0: it is 192",
    "06_devices/no_latency": "the latency is forgotten",
    "06_devices/one_latency": "latency once instead of once a step",
    "06_devices/as_many_steps_as_ranks": "n steps each way",
}


@pytest.mark.skipif(not SOLVED, reason="this is a student's copy")
@pytest.mark.parametrize("name", IDEAS)
def test_the_message_names_the_idea(name):
    folder = ROOT / "lessons" / name.split("/")[0]
    path = folder / "wrong" / f"{name.split('/')[1]}.py"
    check = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# caught by: ")
    assert IDEAS[name] in judge(folder, path, [check])[check].message


# ---- grading never breaks

BAD = {
    "def f(:\n": "SyntaxError",
    "import nothing_like_it\n": "ModuleNotFoundError",
    "raise SystemExit(0)\n": "calls exit",
    "import os; os._exit(0)\n": "ended Python",
    "def shift(group, x): import os; os._exit(0)": "ended Python",
    "def shift(group, x): import os; os._exit(3)": "exit code 3",
    "def shift(group, x): raise SystemExit": "calls exit",
    "def shift(group, x): exit()": "calls exit",
    "def shift(group, x): return shift(group, x)": "RecursionError",
    "def shift(group, x): return 1 / 0": "(answers.py, line 1)",
    "def shift(group, x): return input()": "EOFError",
    "def shift(group, x): raise KeyboardInterrupt": "KeyboardInterrupt",
    "def shift(group, x): assert False": "AssertionError",
    "shift = 3\n": "there is no function shift",
    "": "there is no function shift",
    "def shift(group, x): return group.all_reduce(x)": "the exercise is to do it with send, recv",
}
shift_is = ["check_everyone_gets_the_one_before"]


@pytest.mark.parametrize("source", BAD)
def test_a_bad_file_gets_a_line(source, tmp_path):
    path = tmp_path / "answers.py"
    path.write_text(source, encoding="utf-8")
    (result,) = grade.grade(ROOT / "lessons" / "06_devices", path, shift_is)
    assert BAD[source] in result.message and "\n" not in result.message
    assert result.status in ("error", "failed")


@pytest.mark.parametrize(
    "source, line",
    [
        ("def shift(group, x)\n    return x\n", "(answers.py, line 1: def shift(group, x))"),
        ("def ring_seconds(*_): return 0.0\n", "there is no function shift in answers.py"),
    ],
)
def test_a_missing_function_is_told_once_for_each_exercise(source, line, tmp_path):
    path = tmp_path / "answers.py"
    path.write_text(source, encoding="utf-8")
    checks = [*shift_is, "check_a_group_of_one", "check_parts_of_the_sum"]
    shown = grade.report(grade.grade(ROOT / "lessons" / "06_devices", path, checks))
    assert shown.count(line) == shown.count(" all 2 checks: ") + ("line 1" in line)
    assert shown.count("FAILS") == 2 and " its only check: " in shown


@pytest.mark.parametrize("where", ["module", "function", "on one rank only"])
def test_an_endless_loop_is_stopped_and_the_other_checks_go_on(where, tmp_path, monkeypatch):
    monkeypatch.setattr(grade, "LIMIT", 1.5)
    path = tmp_path / "answers.py"
    loop = {
        "module": "while True: pass\n",
        "function": "def shift(group, x):\n    while True: print('flood')\n",
        "on one rank only": "def shift(group, x):\n    while group.rank: pass\n    return x\n",
    }[where]
    path.write_text(loop + "def ring_seconds(*_): return 0.0\n", encoding="utf-8")
    start = time.monotonic()
    checks = [*shift_is, "check_one_rank_takes_no_time"]
    first, second = grade.grade(ROOT / "lessons" / "06_devices", path, checks)
    assert time.monotonic() - start < 30
    assert "does a loop never end?" in first.message
    assert second.status == ("error" if where == "module" else "passed")


def test_a_flood_of_output_is_cut(tmp_path):
    path = tmp_path / "answers.py"
    path.write_text(
        "def ring_seconds(*_):\n    for _ in range(10**4): print('x' * 1000)\n    return 0.0\n",
        encoding="utf-8",
    )
    (result,) = grade.grade(
        ROOT / "lessons" / "06_devices", path, ["check_one_rank_takes_no_time"]
    )
    assert result.status == "passed" and len(result.printed) == 2000


def test_pytest_grades_a_file_and_writes_junit(tmp_path):
    path, junit = tmp_path / "answers.py", tmp_path / "junit.xml"
    path.write_text(
        "def shift(group, x):\n    return x\ndef ring_seconds(op, n, *_):\n    return 0.0\n",
        encoding="utf-8",
    )
    done = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "lessons/06_devices",
        f"--target={path}",
        f"--junitxml={junit}",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    cases = {
        case.get("name"): case for case in xml.etree.ElementTree.parse(junit).iter("testcase")
    }
    assert cases.keys() == grade.find_checks(ROOT / "lessons" / "06_devices").keys()
    assert cases["check_one_rank_takes_no_time"].find("failure") is None
    assert "everyone has its own x" in cases[shift_is[0]].find("failure").get("message")
    assert "there is no function reduce_scatter" in done.stdout and "Traceback" not in done.stdout


def test_pytest_without_arguments_grades_nothing():
    done = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-m",
        "not slow",
        "--ignore=tests",
    )
    assert "check_" not in done.stdout, done.stdout


# ---- the commands


def test_it_asks_which_lesson_to_check(capsys):
    assert main(["check"]) == 1
    line = "check which lesson? python -m lessons check 6\n"
    assert capsys.readouterr().err == f"python -m lessons: error: {line}"


def test_the_list_names_every_lesson(capsys):
    assert main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ALL)


def test_a_lesson_runs_and_presents_itself(capsys, monkeypatch):
    answers = iter(["", "", "", "b", "", "", "q"])  # back from the output to the prose
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["6", "--step"]) == 0
    shown = capsys.readouterr().out
    order = re.findall(r"^(## A device|\| y = x @ w|\[\[ 3)", shown, re.MULTILINE)
    assert order == ["## A device", "| y = x @ w", "## A device", "| y = x @ w", "[[ 3"], shown
    assert max(map(len, shown.splitlines())) <= 100
    monkeypatch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(EOFError()))
    assert main(["6", "--step"]) == 0
    assert "## Three questions" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["99"], ["x"], ["check", "99"], ["dance", "6"], ["check", "6", "--target", "no.py"]],
)
def test_a_mistake_gets_one_line(arguments, capsys):
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("python -m lessons: error: ")


def test_the_tour_takes_half_a_minute_and_a_screen_for_each_part():
    start = time.perf_counter()
    done = run("-m", "lessons", "tour", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 60  # 30 on a quiet computer
    assert all(len(part.splitlines()) < 30 for part in done.stdout.split("---\n"))


def test_helpers_examples():
    for module in (lessons, cells, checking, page, release):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    "got, expected, line",
    [
        (np.ones(3), np.ones(4), "expected [4] float64, got [3] float64"),
        (np.ones(3, np.float32), np.ones(3), "expected [3] float64, got [3] float32"),
        ([1.0, 1.0], np.ones(2), "expected a NumPy array [2] float64, got list [1.0, 1.0]"),
        (None, np.ones(2), "expected a NumPy array [2] float64, got None"),
        (np.array([1, np.nan]), np.ones(2), "element 1 is nan, expected 1"),
        (np.array([1, 1 + 1e-9]), np.ones(2), "element 1 is 1.000000001, expected 1"),
        (np.ones((2, 2)), np.eye(2), "element [0, 1] is 1, expected 0"),
        (True, 1, "expected a number, got bool True"),
        ("1", 1.0, "expected a number, got str '1'"),
        (np.ones(1), 1.0, "expected a number, got an array [1] float64"),
        ([1], [1, 2], "expected a list that is 2 long, got list [1]"),
        ([1, [2, 3]], [1, [2, 4]], "[1]: [1]: it is 3, expected 4"),
        (
            {"w": 1},
            {"w": 1, "b": 2},
            "expected a dict with the keys ['w', 'b'], got dict {'w': 1}",
        ),
        ({"w": 1}, {"w": 2}, "['w']: it is 1, expected 2"),
        (1, True, "expected True, got int 1"),
        ("F", "B", "expected 'B', got str 'F'"),
    ],
)
def test_differences_are_told_in_a_line(got, expected, line):
    assert checking.difference(got, expected) == line


@pytest.mark.parametrize(
    "got, expected",
    [
        (np.array([1, 1 + 1e-11]), np.ones(2)),
        (np.int64(3), 3),
        (np.array(3.0), 3),
        ((1, 2), [1, 2]),
        (np.array([1], np.int32), np.array([1])),
        (np.array([np.inf, np.nan]), np.array([np.inf, np.nan])),
    ],
)
def test_equals_are_equal(got, expected):
    assert checking.difference(got, expected) is None


def overwrite(x):
    x[...] = 0.0
    return x


@pytest.mark.parametrize(
    "program, line",
    [
        (lambda rank, x: x.numpy(), "expected an array on device 0, got an array [2] float64"),
        (lambda rank, x: [x.to_device(Device(7))], "expected an array on device 0, got one on"),
        (lambda rank, x: overwrite(x), "rank 0: an input was changed ([0]: element 0 is 0"),
        (lambda rank, x: rank.tp.recv(1 - rank.rank), "on 2 ranks: no rank can go on"),
        (lambda rank, x: rank.tp.all_reduce(x[rank.rank :]), "on 2 ranks: rank 0 calls all_red"),
    ],
)
def test_what_is_wrong_on_ranks_is_an_assertion(program, line):
    with pytest.raises(AssertionError, match=re.escape(line)):
        checking.on_ranks(program, Mesh(tp=2), [np.ones(2), np.ones(2)])


def test_one_rank_is_no_ranks():
    with pytest.raises(AssertionError, match="^on 1 rank: rank 0 talks to itself"):
        checking.on_ranks(lambda rank, x: rank.tp.recv(0), Mesh(tp=1), [np.ones(2)])
    with pytest.raises(AssertionError, match="^sum on 1 rank: it is 1, expected 2$"):
        checking.same(1, 2, "sum on 1 ranks")
    with pytest.raises(AssertionError, match="^sum on 11 ranks: it is 1, expected 2: b$"):
        checking.same(1, 2, "sum on 11 ranks", [("a", 3), ("b", 1)])


def test_inputs_have_to_stay_as_they_are():
    with checking.unchanged([np.ones(2)]):
        pass
    given = {"w": np.ones(2)}
    with pytest.raises(AssertionError, match="was changed"), checking.unchanged(given):
        given["w"][1] = 2
    x = [np.ones(2)] * 2
    (y, _) = checking.on_ranks(lambda _, x: overwrite(x), Mesh(tp=2), x, may_change=True)
    assert y.tolist() == [0, 0] and x[0].tolist() == [1, 1]


# ---- the page of all lessons


class Page(html.parser.HTMLParser):
    VOID = {"meta", "link", "br", "hr", "img"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.loads = [], [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        self.loads += [
            v for k, v in attributes.items() if k == "src" or (k == "href" and tag == "link")
        ]

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_html_page_is_whole_and_needs_no_network(tmp_path):
    file = tmp_path / "lessons.html"
    assert main(["page", str(file)]) == 0
    text, found = file.read_text(encoding="utf-8"), Page()
    found.feed(text)
    assert found.open == [] and len(set(found.ids)) == len(found.ids) == len(ALL)
    assert (
        found.loads == ["data:,"]
        and "<script" not in text
        and "url(" not in text
        and "@import" not in text
    )
    for link in found.links:
        assert link.startswith("https://") or link.removeprefix("#") in found.ids
    for x in ALL:
        for cell in cells.read(x.folder / "lesson.py"):
            if cell.kind == "code":
                assert page.escape(cell.text, quote=False) in text
        assert all(svg.read_text(encoding="utf-8") in text for svg in x.folder.glob("*.svg"))


@pytest.mark.parametrize(
    "markdown, html",
    [
        ("a & b <c>", "<p>a &amp; b &lt;c&gt;</p>"),
        (
            "```python\nx = '<' & y\n\n# no heading\n```",
            "<pre tabindex=\"0\"><code>x = '&lt;' &amp; y\n\n# no heading</code></pre>",
        ),
        ("`a*b*c` and 2 * 3 * 4", "<p><code>a*b*c</code> and 2 * 3 * 4</p>"),
        ("`a<b>`", "<p><code>a&lt;b&gt;</code></p>"),
        ("**x** *y*", "<p><strong>x</strong> <em>y</em></p>"),
        (
            "| a | b |\n| --- | --: |\n| 1 | `x` |",
            "<div class=wide><table><tr><th>a</th><th>b</th></tr>"
            "<tr><td>1</td><td><code>x</code></td></tr></table></div>",
        ),
        (
            "1. one\n   more\n2. two\n\nend",
            "<ol><li>one\n   more</li><li>two</li></ol>\n<p>end</p>",
        ),
        ("[x](https://a.b/c?d=1&e=2)", '<p><a href="https://a.b/c?d=1&amp;e=2">x</a></p>'),
        ("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>"),
        ("---\nx", "<hr>\n<p>x</p>"),
    ],
)
def test_markdown_becomes_html(markdown, html):
    assert page.to_html(markdown) == html


def test_bars_are_drawn_to_scale():
    svg = xml.etree.ElementTree.fromstring(
        bars("a < b", {"x": {"p": 1, "q": 2}, "y": {"p": 6}}, "GB")
    )
    widths = [float(e.get("width")) for e in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == [70, 140, 420]


# ---- the student's copy

FAKE = '''"""A lesson that teaches f and g."""
TEACHES = {"enter": "gpt_numpy.parallel.tensor.enter", "leave": "gpt_numpy.parallel.tensor.leave"}


def enter(tp):
    """f"""
    raise NotImplementedError("no")


def leave(tp):
    """g"""
    raise NotImplementedError("no")
'''
ANSWERS = """from gpt_numpy.layers import Pair


def enter(tp):
    return Pair(lambda x: x, tp.all_reduce)


def leave(tp):
    return Pair(tp.all_reduce, lambda x: x)
"""
NEEDS = """
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.parallel.tensor import leave


def test_it():
    def program(rank):
        return leave(rank.tp).forward(rank.device.put([1.0])).numpy().tolist()

    assert run(program, Mesh(tp=2)) == [[2.0]] * 2


def test_nothing():
    pass
"""


@pytest.fixture
def copy(tmp_path):
    """A student's copy of a project with lesson 6 and one that teaches f and g."""
    root = tmp_path / "root"
    folder = root / "lessons" / "88_fake"
    others = shutil.ignore_patterns("__pycache__", "test_*.py", "0[!6]_*", "1[0-9]_*")
    for name in ("gpt_numpy", "lessons", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=others)
    shutil.copyfile(ROOT / ".pytest.ini", root / ".pytest.ini")
    folder.mkdir()
    (folder / "exercise.py").write_text(FAKE, encoding="utf-8")
    (folder / "solution.py").write_text(ANSWERS, encoding="utf-8")
    (root / "tests" / "test_needs.py").write_text(textwrap.dedent(NEEDS), encoding="utf-8")
    release.release(tmp_path / "copy", root)
    return tmp_path / "copy"


@pytest.mark.skipif(not SOLVED, reason="this is a student's copy")
def test_a_students_copy_has_no_answers_and_runs_on_the_students_own(copy):
    left = {path.name for path in copy.rglob("*")}
    assert not left & {"solution.py", "wrong", "accept"} and {"exercise.py", "check.py"} <= left
    assert "def leave" not in (copy / "gpt_numpy/parallel/tensor.py").read_text(encoding="utf-8")
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "tests/test_needs.py"]
    done = run(*test, cwd=copy)
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "lesson 88's exercise leave is not solved yet" in done.stdout
    text = copy / "text.txt"
    text.write_text(" ".join(f"word{i}" for i in range(2000)), encoding="utf-8")
    sizes = "--n-vocab 270 --n-embd 8 --n-head 2 --n-layer 1 --n-ctx 8 --batch 2 --steps"
    train = ["-m", "gpt_numpy", "train", "--text", text, "--out", copy / "model", "--tp", "2"]
    train += [*sizes.split(), "2"]
    done = run(*train, cwd=copy)
    assert done.returncode == 1 and "lesson 88's exercise" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 or sys.version_info < (3, 11)  # which adds the rank's note
    (copy / "lessons/88_fake/exercise.py").write_text(ANSWERS, encoding="utf-8")
    done = run(*test, cwd=copy)
    assert "2 passed" in done.stdout, done.stdout
    done = run(*train, cwd=copy)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not SOLVED, reason="this is a student's copy")
def test_the_copys_own_tests_pass_with_and_without_solutions(tmp_path):
    """Those of the lessons and of what exercises teach, but for one that takes minutes."""
    release.release(tmp_path / "copy")
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-rs"]
    test += ["tests/test_lessons.py", "tests/test_parallel.py", "gpt_numpy/parallel"]
    test += ["-k", "not every_layout"]
    done = run(*test, cwd=tmp_path / "copy", timeout=600)
    assert done.returncode == 0, done.stdout[-5000:]
    for folder in SOLVED:
        answers = (folder / "solution.py").read_text(encoding="utf-8")
        stub = tmp_path / "copy" / "lessons" / folder.name / "exercise.py"
        stub.write_text(answers, encoding="utf-8")
    done = run(*test, cwd=tmp_path / "copy", timeout=600)
    assert done.returncode == 0 and "is not solved yet" not in done.stdout, done.stdout[-5000:]


def test_what_exercises_teach_is_there_with_the_same_signature():
    for module, functions in release.find_taught().items():
        source = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
        there = {getattr(node, "name", None): node for node in source.body}
        for name, (lesson, exercise) in functions.items():
            if name in there and isinstance(
                there[name], ast.FunctionDef
            ):  # not so in a student's copy
                stub = inspect.signature(
                    getattr(grade.load(ROOT / "lessons" / lesson / "exercise.py"), exercise)
                )
                args = there[name].args
                assert list(stub.parameters) == [
                    a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]
                ]


def test_a_copy_is_not_written_over_something(tmp_path):
    (tmp_path / "mine").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="not empty"):
        release.release(tmp_path)
