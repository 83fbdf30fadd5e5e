"""Timelines: three forms of one record, whose sums are the simulator's and the devices' meters."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gpt_numpy import layers, timeline
from gpt_numpy.checkpoint import flatten, unflatten
from gpt_numpy.cluster import MEGASCALE, Setup, Span, simulate
from gpt_numpy.cost import Cost
from gpt_numpy.flops import Config, model
from gpt_numpy.hardware import GPUS
from gpt_numpy.mesh import Mesh, run
from gpt_numpy.parallel import pipeline
from gpt_numpy.parallel.model import Layout, split_layers
from gpt_numpy.train import init_params

HAND = [
    Span("stage 0", "forward", "forward 0", 0.0, 1.0),
    Span("stage 1", "forward", "forward 0", 1.0, 2.0),
    Span("stage 1", "backward", "backward 0", 2.0, 4.0),
    Span("stage 0", "backward", "backward 0", 4.0, 6.0),
    Span("stage 0 dp", "reduce", "a < b", 6.0, 8.0),
]
LAYOUTS = [
    (Layout(2, 4, 8, True, 1, "1f1b"), {}),
    (Layout(2, 4, 8, True, 0, "gpipe"), {"overlap": frozenset(["pp", "dp"])}),
    (Layout(4, 4, 8, True, 1, "interleaved", 3), MEGASCALE),
    (Layout(4, 2, 8, True, 2), {}),
    (Layout(4, 2, 8, True, 3), {}),
    (Layout(4, 2, 8, True, 3), {"overlap": frozenset(["dp"])}),
]


@pytest.mark.parametrize("layout, options", LAYOUTS)
def test_a_stages_lane_adds_up_to_where_the_simulated_seconds_went(layout, options):
    spans = []
    setup = Setup(model("gpt3-175b"), layout, 8 * layout.dp, **options)
    step = simulate(setup, spans=spans)
    assert simulate(setup).seconds == step.seconds == pytest.approx(max(s.end for s in spans))
    lanes = timeline.seconds(timeline.with_bubbles(spans))
    busy = max((lanes[f"stage {r}"] for r in range(layout.pp)),
               key=lambda lane: lane["forward"] + lane["backward"])  # fmt: skip
    parts = step.parts
    computed = sum(parts[name] for name in ("matmul", "attention", "elementwise", "tp"))
    assert busy["forward"] + busy["backward"] == pytest.approx(computed)
    for kind, part in (("send", "pp"), ("wait", "dp"), ("bubble", "bubble"), ("fixed", "fixed"),
                       ("optimizer", "optimizer"), ("stragglers", "stragglers")):
        assert busy.get(kind, 0) == pytest.approx(parts[part], abs=1e-12)
    for own in timeline.lanes(spans).values():  # a lane does one thing at a time
        assert all(a.end <= b.start + 1e-12 for a, b in zip(own, own[1:]))


def test_a_run_on_a_mesh_adds_up_to_its_devices_meters():
    config = Config(n_embd=8, n_head=2, n_layer=2, n_ctx=8, n_vocab=16)
    params = init_params(config, np.float32, 0)

    def program(rank):
        device, ids = rank.device, rank.device.put(np.arange(16).reshape(2, 8))
        device.record = []
        split = timeline.watch(split_layers(Layout(tp=1), rank.tp, config.n_vocab), device)
        names = (("w", "h.0"), ("wte", "h.1", "ln_f"))[rank.rank]
        own = {k: device.put(a) for k, a in flatten(params).items() if k.startswith(names)}
        own = unflatten({k.replace("h.1", "h.0"): a for k, a in own.items()})

        def forward(i, chunk, x):
            return layers.gpt2(ids if x is None else x, own, ids, 16, 2, split)

        pipeline.play(pipeline.SCHEDULES["1f1b"](rank.rank, 2, 3), rank.pp, 1, forward)

    mesh = Mesh(pp=2, cost=Cost(GPUS["a100"]))
    run(program, mesh)
    spans = timeline.of_mesh(mesh.devices)
    lanes = timeline.seconds(spans)
    for i, device in enumerate(mesh.devices):
        own = lanes[f"device {i}"]
        assert sum(own.values()) == pytest.approx(device.seconds["compute"])
        assert own["backward"] > own["forward"] > own["compute"] > 0  # the mask is no layer's
        sent = lanes[f"device {i} send"]["communication"]
        assert sent == pytest.approx(device.seconds["send"]) and sent > 0
    rows = [row for row in timeline.text(spans, 80).splitlines()[:-1] if "F" in row]
    assert len(rows) == 2 and all(re.search("F.*B", row) for row in rows)


def test_text_shows_each_kind_by_a_letter_of_its_own_and_fits():
    assert timeline.text(HAND, 27).splitlines() == [
        "stage 0    FF......BBBB....",
        "stage 0 dp             rrrr",
        "stage 1    ..FFBBBB........",
        "F forward, B backward, r reduce, . bubble; 8 s",
    ]
    letters = [letter for letter, *_ in timeline.KINDS.values()]
    assert len(set(letters)) == len(letters)
    spans = []
    simulate(Setup(model("gpt3-175b"), LAYOUTS[2][0], 32, **MEGASCALE), spans=spans)
    for width in (40, 79, 200):
        assert all(len(row) == width for row in timeline.text(spans, width).splitlines()[:-1]
                   if row.rstrip() == row)  # fmt: skip
        assert max(map(len, timeline.text(spans, width).splitlines()[:-1])) <= width


def test_the_picture_stands_alone_with_tooltips_a_legend_and_a_dark_page():
    picture = timeline.svg(HAND)
    root = ElementTree.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in root.iter(f"{name}title")]
    assert "a < b: 6 to 8 s, 2 s" in titles and len(titles) == len(timeline.with_bubbles(HAND))
    words = {text.text for text in root.iter(f"{name}text")}
    assert {"forward", "backward", "reduce", "bubble", "stage 0", "stage 0 dp", "stage 1"} <= words
    assert "prefers-color-scheme: dark" in picture
    every = [Span("stage 0", kind, kind, i, i + 1) for i, kind in enumerate(timeline.KINDS)]
    legend = ElementTree.fromstring(timeline.svg(every)).iter(f"{name}text")
    assert max(float(text.get("x")) for text in legend if text.text in timeline.KINDS) < 1150
    assert not re.search(r'(href|src)=|url\(|@import', picture)
    bars = [r for r in root.iter(f"{name}rect") if r.find(f"{name}title") is not None]
    for bar in bars:
        assert 0 <= float(bar.get("x")) <= float(bar.get("x")) + float(bar.get("width")) <= 1200


def test_the_trace_has_every_span_in_microseconds_and_a_name_for_each_lane():
    events = json.loads(timeline.trace(HAND))["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    bars = {Span(lanes[e["tid"]], e["cat"], e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6)
            for e in events if e["ph"] == "X"}  # fmt: skip
    assert bars == set(HAND)


def test_save_writes_what_is_asked_for(tmp_path):
    timeline.save(HAND, tmp_path / "a.svg", tmp_path / "a.json")
    timeline.save(HAND)
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == timeline.svg(HAND)
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == timeline.trace(HAND)
    assert len([*tmp_path.iterdir()]) == 2
