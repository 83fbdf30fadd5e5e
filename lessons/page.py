"""Lessons as pages: README.md beside each, to read on GitHub, and all of them as one HTML file."""

import ast
import re
from html import escape
from pathlib import Path

from lessons import PICTURES
from lessons.cells import LESSONS, find_lessons, play


def exercises(folder):
    """{name: first line} of the exercises of a lesson."""
    path = folder / "exercise.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    stubs = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return {
        node.name: ast.get_docstring(node).splitlines()[0]
        for node in stubs
        if ast.get_docstring(node)
    }


def code_block(language, text):
    return f"```{language}\n{text.rstrip()}\n```"


def render(lesson):
    """The files of a lesson's page, {name: text}: README.md and its pictures. Runs the lesson."""
    PICTURES.clear()
    parts, files = [], {}
    steps = play(lesson.folder / "lesson.py")
    for cell in steps:
        parts.append(cell.text if cell.kind == "markdown" else code_block("python", cell.text))
        for piece in re.split(r"^(\[picture: .+\]\n)", next(steps), flags=re.MULTILINE):
            if piece.startswith("[picture: "):
                name, svg = PICTURES.pop(0)
                files[f"{name.replace(' ', '_')}.svg"] = svg
                parts.append(f"![{name}]({name.replace(' ', '_')}.svg)")
            elif piece.strip():
                parts.append(code_block("text", piece.strip("\n")))
    found = exercises(lesson.folder)
    if found:
        parts.append("## Exercises\n\nIn [exercise.py](exercise.py):")
        parts.append("\n".join(f"- `{name}`: {sentence}" for name, sentence in found.items()))
        parts.append(f"`python -m lessons check {lesson.number}` says what passes.")
    command = f"`python -m lessons {lesson.number}`"
    parts.append(f"*This page is [lesson.py](lesson.py) and what it prints; {command} runs it.*")
    return {"README.md": "\n\n".join(parts) + "\n", **files}


def write(lesson):
    files = render(lesson)
    for path in set(lesson.folder.glob("*.svg")) - {lesson.folder / name for name in files}:
        path.unlink()
    for name, text in files.items():
        (lesson.folder / name).write_text(text, encoding="utf-8", newline="\n")


# Markdown to HTML: what lessons use of it.

BLOCKS = re.compile(
    r"```\w*\n(?P<code>.*?)\n```"
    r"|(?P<heading>#{1,6} [^\n]+)"
    r"|(?P<table>(?:\|[^\n]*\n?)+)"
    r"|(?P<list>(?:(?:[-*]|\d+\.) [^\n]*\n?(?: +[^\n]+\n?)*)+)"
    r"|(?P<rule>---+(?:\n|$))"
    r"|(?P<text>[^\n]+(?:\n(?!```|#|\||[-*] |\d+\. )[^\n]+)*)",
    re.DOTALL,
)


def inline(text, link):
    """Text with code, pictures, links, emphasis. `link` says where a link leads; None: nowhere."""

    def image(m):
        return link(m[2], picture=True) or escape(m[1])

    def anchor(m):
        target = link(m[2].replace("&amp;", "&"))
        return f'<a href="{escape(target)}">{m[1]}</a>' if target else m[1]

    kept = []  # code, which nothing below may touch

    def keep(m):
        kept.append(f"<code>{escape(m[1])}</code>")
        return f"\0{len(kept) - 1}\0"

    text = escape(re.sub(r"`([^`]+)`", keep, text), quote=False)
    text = re.sub(r"!\[([^\]]*)\]\(([^)]+)\)", image, text)
    text = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", anchor, text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text, flags=re.DOTALL)
    text = re.sub(r"(?<!\w)\*(?!\s)(.+?)(?<!\s)\*(?!\w)", r"<em>\1</em>", text, flags=re.DOTALL)
    return re.sub(r"\0(\d+)\0", lambda m: kept[int(m[1])], text)


def to_html(text, link=lambda target, picture=False: target):
    """
    >>> print(to_html("# A < B\\n\\nSee *this* and `x*y*z`:\\n- one\\n- **two**"))
    <h1>A &lt; B</h1>
    <p>See <em>this</em> and <code>x*y*z</code>:</p>
    <ul><li>one</li><li><strong>two</strong></li></ul>
    """
    html = []
    for block in BLOCKS.finditer(text):
        kind, body = block.lastgroup, block[block.lastgroup]
        if kind == "code":
            html.append(f'<pre tabindex="0"><code>{escape(body, quote=False)}</code></pre>')
        elif kind == "heading":
            marks, _, title = body.partition(" ")
            html.append(f"<h{len(marks)}>{inline(title, link)}</h{len(marks)}>")
        elif kind == "table":
            rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in body.splitlines()]
            cells = [
                [inline(cell.strip().replace("\\|", "|"), link) for cell in row] for row in rows
            ]
            del cells[1:2]  # | --- | --- |
            lines = [
                "".join(f"<t{'d' if i else 'h'}>{cell}</t{'d' if i else 'h'}>" for cell in row)
                for i, row in enumerate(cells)
            ]
            html.append(f"<div class=wide><table><tr>{'</tr><tr>'.join(lines)}</tr></table></div>")
        elif kind == "list":
            tag = "ol" if body[0].isdigit() else "ul"
            items = re.split(r"^(?:[-*]|\d+\.) ", body, flags=re.MULTILINE)[1:]
            html.append(
                f"<{tag}><li>"
                + "</li><li>".join(inline(i.strip(), link) for i in items)
                + f"</li></{tag}>"
            )
        else:
            html.append("<hr>" if kind == "rule" else f"<p>{inline(body, link)}</p>")
    return "\n".join(html)


STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8881; --link: #0b5cad }
@media (prefers-color-scheme: dark) { :root { --link: #7db8ff } }
body { font: 1.05rem/1.6 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 56rem }
body { overflow-wrap: anywhere }
pre { padding: .8rem; background: var(--soft); border: 1px solid var(--line); overflow-x: auto }
pre { font: .85rem/1.45 ui-monospace, Consolas, monospace; overflow-wrap: normal }
pre + pre { margin-top: -.7rem; background: none }
:not(pre) > code { background: var(--soft); padding: .1em .3em; font-size: .9em }
.wide { overflow-x: auto } table { border-collapse: collapse; overflow-wrap: normal }
td, th { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left }
svg { max-width: 100%; height: auto } a { color: var(--link) }
article { border-top: 2px solid var(--line); margin-top: 3rem }
"""
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>gpt_numpy: lessons</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>{style}</style></head><body>
<h1>gpt_numpy: lessons</h1>
<nav><ol>
{contents}
</ol></nav>
{articles}
</body></html>
"""


def html_page(folder=LESSONS):
    """All rendered lessons as one page that needs neither network nor script."""
    lessons = find_lessons(folder)
    places = {lesson.folder.name: f"#lesson-{lesson.number}" for lesson in lessons}
    contents, articles = [], []
    for title, number, minutes, path in [
        (x.title, x.number, x.minutes, x.folder) for x in lessons
    ]:

        def link(target, picture=False, path=path):
            if picture:
                return (path / target).read_text(encoding="utf-8")
            if target.startswith(("http:", "https:", "#")):
                return target
            return places.get(Path(target).parent.name)  # another lesson; files are not in here

        body = to_html((path / "README.md").read_text(encoding="utf-8"), link)
        articles.append(f'<article id="lesson-{number}">\n{body}\n</article>')
        anchor = f'<a href="#lesson-{number}">{inline(title, link)}</a>'
        contents.append(f'<li value="{number}">{anchor}, {minutes} minutes</li>')
    lists = {"contents": "\n".join(contents), "articles": "\n".join(articles)}
    return PAGE.format(style=STYLE, **lists)
