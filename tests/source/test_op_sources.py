"""Where annotated ops are in the program: what is declared at their first range, and what reports make of it."""

from __future__ import annotations

import json
from functools import partial, wraps
from pathlib import Path

import pytest
from made_reports import PUSH_POP, Made, thread
from recorder import Recorder

import bridge
from bridge import nvtx_op
from bridge.annotate import emit, source
from bridge.annotate.label import Label
from bridge.annotate.recording.recorder import Recorder as HostRecorder
from bridge.importers.nsys import stacks

HERE = Path(__file__).as_posix()


class Categories(Recorder):
    """A back end that keeps the names of categories."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[tuple[str | None, str]] = []

    def name_category(self, domain: str | None, name: str) -> None:
        self.named.append((domain, name))


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.setattr(source, "places", {})
    monkeypatch.setattr(source, "_declared", set())
    monkeypatch.setattr(emit.state, "sources", False)
    before = emit.use(backend := Categories())
    yield backend
    emit.use(before)


def line_of(marker: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, start=1) if line.endswith(f"# {marker}"))


def test_a_function_and_a_block_are_declared_once_with_their_place(tool):
    @nvtx_op(source=True, domain="d")  # first
    def step() -> None:
        with nvtx_op("block", source=True):  # second
            pass
        with nvtx_op("plain"):
            pass

    assert not tool.named
    step()
    step()
    name = "test_a_function_and_a_block_are_declared_once_with_their_place.step"
    assert tool.named == [
        ("d", f"source:{line_of('first')}:{HERE}\t{name}\t{name}"),
        (None, f"source:{line_of('second')}:{HERE}\tblock\t{name}"),
    ]
    assert [one.label.name for one in tool.slices] == [name, "block", "plain"] * 2


def test_the_variable_declares_every_op(tool, monkeypatch):
    monkeypatch.setattr(emit.state, "sources", True)

    def traced(function):
        return wraps(function)(lambda *args: function(*args))  # noqa: PLW0108 - another function

    @nvtx_op
    @traced
    def wrapped() -> None: ...  # third

    made = nvtx_op("partial")(partial(divmod, 7))
    wrapped()
    made(2)
    [(_, name)] = tool.named
    assert name.startswith(f"source:{line_of('third') - 2}:{HERE}\t")


def test_nothing_is_declared_to_a_tool_that_cannot_and_through_a_recorder_to_its_tool(tool):
    label = Label("x")
    source.places[label] = ["source:1:a\tx\tf"]
    source.declare(Recorder(), label)
    both = object.__new__(HostRecorder)
    both.tool = tool
    source.declare(both, label)
    source.declare(both, label)
    assert tool.named == [(None, "source:1:a\tx\tf")]
    assert source.OP_SOURCE == stacks.OP_SOURCE


def written(path: Path, *places: tuple[int, str]) -> Path:
    """Write a report with kernels in `inner` in `outer`, in `outer`, in another domain's `outer`, and in nothing."""
    report = Made()
    for number, (domain, place) in enumerate(places, start=1):
        report.annotation(
            33, 1, None, text=place, domain=domain, category=number, thread=thread(100)
        )
    report.annotation(PUSH_POP, 100, 300, text="outer", thread=thread(100))
    report.annotation(PUSH_POP, 110, 200, text="inner", thread=thread(100))
    report.annotation(PUSH_POP, 400, 500, text="outer", domain=6, thread=thread(100))
    for number, at in enumerate((120, 250, 420, 600), start=1):
        report.kernel("k", at, 100, 1_000 * number, 1_000 * number + number)
    return report.written(path)


OUTER, INNER = "source:3:/home/me/a.py\touter\tf", "source:9:/home/me/a.py\tinner\tM.g"


def test_work_has_the_place_of_the_innermost_op_that_has_one(tmp_path):
    one = bridge.load(written(tmp_path / "a.sqlite", (0, OUTER), (0, "math"))).by("source")
    told = dict(zip(one["source"], one["gpu_ns"], strict=True))
    assert told == {"/home/me/a.py:3": 3, "(no call stack)": 7}
    assert set(one["kind"]) == {"op", ""}
    both = bridge.load(written(tmp_path / "b.sqlite", (0, OUTER), (0, INNER))).by("source")
    assert dict(zip(both["function"], both["gpu_ns"], strict=True)) == {"M.g": 1, "f": 2, "": 7}


def test_traces_tell_the_place_of_an_op(tmp_path):
    report = bridge.load(written(tmp_path / "a.sqlite", (0, OUTER)))
    report.export_trace(tmp_path / "a.json")
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    told = {e["dur"]: e["args"].get("source") for e in events if e.get("cat") == "op"}
    assert told == {0.2: "/home/me/a.py:3 f", 0.09: None, 0.1: None}


def test_an_op_in_two_places_has_none(tmp_path):
    other = OUTER.replace(":3:", ":5:")
    path = written(tmp_path / "a.sqlite", (0, OUTER), (0, other), (0, INNER), (0, INNER))
    table = bridge.load(path).by("source")
    assert dict(zip(table["function"], table["gpu_ns"], strict=True)) == {"M.g": 1, "": 9}


def test_categories_of_ranges_stay_what_they_are(tmp_path):
    loaded = bridge.load(written(tmp_path / "a.sqlite", (0, OUTER)))
    assert set(loaded.capture.ranges.category) == {""}
