"""Timelines: what each lane did when, as text, as an SVG picture, and for Perfetto.

All three are made of the same Spans, of a simulated step (cluster.simulate fills its list `spans`)
or of any run on a mesh whose devices record (`of_mesh`), with numbers or without.

>>> spans = [Span("stage 0", "forward", "F0", 0, 1), Span("stage 0", "backward", "B0", 2, 4)]
>>> print(text(spans, width=16), seconds(spans), sep="\\n")
stage 0 FF..BBBB
F forward, B backward, . bubble; 4 s
{'stage 0': {'forward': 1, 'backward': 2}}
"""

import json
import shutil
from html import escape
from pathlib import Path

from gpt_numpy.cluster import Span
from gpt_numpy.layers import Layers

KINDS = {  # kind -> its letter in text, its colour on a light and on a dark page
    "forward": ("F", "#4c8fd6", "#5b9ee6"),
    "backward": ("B", "#e08a2e", "#e0913f"),
    "wait": ("w", "#c9b6dd", "#5d4a70"),
    "send": ("s", "#8e5bc0", "#b78ae0"),
    "communication": ("c", "#8e5bc0", "#b78ae0"),
    "gather": ("g", "#3f9c8c", "#55b8a6"),
    "reduce": ("r", "#b0486e", "#d56f94"),
    "compute": ("k", "#5f7f52", "#86a878"),
    "stragglers": ("t", "#a08060", "#b09478"),
    "optimizer": ("o", "#5f7f52", "#86a878"),
    "fixed": ("x", "#707070", "#909090"),
    "bubble": (".", "#e4e4e4", "#3a3a3a"),
}


def watch(layers, device):
    """The layers of a run, their kernels marked in `device.record` as forward or as backward."""

    def marked(function, phase):
        def run(*args):
            before = len(device.record)
            result = function(*args)
            for i, (stream, name, *times) in enumerate(device.record[before:], before):
                name = name if name.startswith(("forward: ", "backward: ")) else f"{phase}: {name}"
                device.record[i] = stream, name, *times
            if phase == "forward":
                return result[0], marked(result[1], "backward")
            return result

        return run

    return Layers(*[marked(layer, "forward") for layer in layers])


def of_mesh(devices):
    """The Spans that devices have recorded: a lane for each one's computing, and each stream."""
    spans = []
    for device in devices:
        for stream, name, start, end in device.record:
            lane, (phase, _, rest) = str(device), name.partition(": ")
            if stream != "compute":
                spans.append(Span(f"{lane} {stream}", "communication", rest or name, start, end))
            else:
                spans.append(Span(lane, phase if rest else "compute", rest or name, start, end))
    return spans


def lanes(spans):
    """{lane: its spans in order}, lanes in order of their numbers."""
    found = {}
    for span in spans:
        found.setdefault(span.lane, []).append(span)
    order = sorted(found, key=lambda lane: [int(w) if w.isdigit() else -1 for w in lane.split()])
    return {lane: sorted(found[lane], key=lambda span: span.start) for lane in order}


def with_bubbles(spans):
    """The same, with a bubble wherever a lane that computes does nothing before the end."""
    end, added = max(span.end for span in spans), []
    for lane, own in lanes(spans).items():
        if {"forward", "backward"} & {span.kind for span in own}:
            at = 0.0
            for span in [*own, Span(lane, "", "", end, end)]:
                if span.start > at:
                    added.append(Span(lane, "bubble", "bubble", at, span.start))
                at = max(at, span.end)
    return [*spans, *added]


def seconds(spans):
    """{lane: {kind: seconds}}."""
    sums = {lane: {} for lane in lanes(spans)}
    for lane, kind, _, start, end in spans:
        sums[lane][kind] = sums[lane].get(kind, 0) + end - start
    return sums


def text(spans, width=None):
    """A row for each lane; each column shows what most of its time went to. Fits the terminal."""
    width = width or shutil.get_terminal_size().columns
    end, label = max(span.end for span in spans), max(len(span.lane) for span in spans)
    columns, rows, seen = max(1, width - label - 1), [], {}
    for lane, own in lanes(with_bubbles(spans)).items():
        shares = [{} for _ in range(columns)]
        for span in own:
            a, b = span.start / end * columns, span.end / end * columns
            for i in range(int(a), min(columns, int(b) + 1)):
                share = min(b, i + 1) - max(a, i)
                if share > 1e-9:
                    shares[i][span.kind] = shares[i].get(span.kind, 0.0) + share
        kinds = [max(share, key=share.get, default=None) for share in shares]
        seen |= dict.fromkeys(kinds)
        letters = [KINDS[kind][0] if kind else " " for kind in kinds]
        rows.append(f"{lane:{label}} {''.join(letters)}")
    names = ", ".join(f"{letter} {kind}" for kind, (letter, *_) in KINDS.items() if kind in seen)
    return "\n".join([*rows, f"{names}; {end:.3g} s"])


def svg(spans, width=1200):
    """A picture that stands alone: hover over a bar to read what it is."""
    spans = with_bubbles(spans)
    rows, end = lanes(spans), max(span.end for span in spans)
    label, height, top = 8 * max(map(len, rows)) + 16, 26, 44
    scale, bottom = (width - label - 36) / end, top + height * len(rows)
    kinds = [kind for kind in KINDS if any(span.kind == kind for span in spans)]
    css = [".svg text{font:13px sans-serif;fill:#222} rect.page{fill:#fff}"]
    css += [f".{kind}{{fill:{KINDS[kind][1]}}}" for kind in kinds]
    dark = [f".{kind}{{fill:{KINDS[kind][2]}}}" for kind in kinds]
    css.append("@media (prefers-color-scheme: dark){.svg text{fill:#ddd} rect.page{fill:#1b1b1b} "
               + " ".join(dark) + "}")  # fmt: skip
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="svg" width="{width}" '
        f'height="{bottom + 34}" viewBox="0 0 {width} {bottom + 34}">',
        f"<style>{' '.join(css)}</style>",
        '<rect class="page" width="100%" height="100%"/>',
    ]
    for i, kind in enumerate(kinds):
        x = label + min(120, (width - label) // len(kinds)) * i
        parts.append(f'<rect class="{kind}" x="{x}" y="12" width="14" height="14"/>'
                     f'<text x="{x + 20}" y="24">{kind}</text>')  # fmt: skip
    for i, (lane, own) in enumerate(rows.items()):
        y = top + height * i
        parts.append(f'<text x="8" y="{y + 16}">{escape(lane)}</text>')
        for span in own:
            x, w = label + span.start * scale, (span.end - span.start) * scale
            name = f"{span.name}: {span.start:.6g} to {span.end:.6g} s, {w / scale:.3g} s"
            parts.append(f'<rect class="{span.kind}" x="{x:.2f}" y="{y}" '
                         f'width="{max(w - min(0.6, w / 4), 0.05):.2f}" height="{height - 5}">'
                         f"<title>{escape(name)}</title></rect>")  # fmt: skip
    for i in range(6):
        x = label + i * end / 5 * scale
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
                     f"{i * end / 5:.3g}{' s' if i == 5 else ''}</text>")  # fmt: skip
    return "\n".join([*parts, "</svg>", ""])


def trace(spans):
    """The Trace Event Format that Perfetto opens: a JSON text, times in microseconds."""
    events = []
    for tid, (lane, own) in enumerate(lanes(spans).items()):
        place = {"pid": 0, "tid": tid}
        events += [
            {"ph": "M", "name": "thread_name", **place, "args": {"name": lane}},
            {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": tid}},
        ]
        for _, kind, name, start, end in own:
            times = {"ts": 1e6 * start, "dur": 1e6 * (end - start)}
            events.append({"ph": "X", "name": name, "cat": kind, **times, **place})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def save(spans, svg_file=None, trace_file=None):
    """Write the spans as a picture, and for Perfetto, where a file is given."""
    for file, make in ((svg_file, svg), (trace_file, trace)):
        if file:
            Path(file).write_text(make(spans), encoding="utf-8", newline="\n")
