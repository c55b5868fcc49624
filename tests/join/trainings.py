"""Programs that train, made up by hypothesis: forward and backward ranges with numbers, modules, several threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from witness.attribution import Activity, Call, Range
from witness.nsys_export import without_per_call_part
from witness.training import Said, TrainingProfile, Wait

from bridge.importers import frames
from bridge.importers.arrays import MISSING
from bridge.importers.capture import Capture
from bridge.importers.texts import Texts
from bridge.join.attributed import AttributedCapture
from bridge.join.options import AttributionOptions
from join.programs import (
    KERNELS,
    KINDS,
    PROCESSES,
    Program,
    not_only_phases,
    op_of,
    report_of,
)

HERE, THERE = PROCESSES[:2]
# Most on three threads of one process, whose work belongs together; the rest goes by the same numbers.
HOMES = [(0, HERE, 1)] * 6 + [(0, HERE, 2)] * 5 + [(0, HERE, 3)] * 2
HOMES += [(0, THERE, 1), (1, HERE, 1), (1, HERE, 1), (1, HERE, 2)]
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
# Names and what they say, by hand.
PLAIN = {
    "aten::mm": Said("operator", False, "aten::mm"),
    "ncclSend": Said("communication", False, "ncclSend"),
    "MmBackward0": Said("operator", True, "MmBackward0"),
    "loss.backward": Said("range", True, "loss.backward"),
    "ProfilerStep#1": Said("step", False, "ProfilerStep"),
    "a": Said("range", False, "a"),
    "a.b": Said("range", False, "a.b"),
}
MODULES = {
    "nn.Module: a": Said("module", False, "a"),
    "module:a.b": Said("module", False, "a.b"),
    "layer:b.backward": Said("module", False, "b.backward"),
}
NAMES = PLAIN | MODULES
# These are in no program that is drawn.
FURTHER = {
    f"aten::{name}": Said("operator", False, f"aten::{name}") for name in "add mul t".split()
}
FURTHER[ENGINE] = Said("operator", True, ENGINE)
# Per call: most often a number, so that backward calls meet forward ones.
CALLS = ["", "", ", op_id = 4", *[", seq = 1, op_id = 3"] * 5, ", seq = 2"]


def _thread(of):
    return st.sampled_from(of).map(
        lambda home: {"report": home[0], "process": home[1], "thread": home[1] | home[2]}
    )


homes = _thread(HOMES)
forward_homes = _thread([(0, HERE, 1)] * 4 + [(0, HERE, 3)] * 2 + [(1, HERE, 1)])
backward_homes = _thread([(0, HERE, 2)] * 5 + [(0, HERE, 1), (0, THERE, 1)])
instants, early, late = (st.integers(*ends) for ends in ((-3, 12), (-3, 5), (3, 12)))
lengths = st.sampled_from([4, 3, 2, 1, 5, 6, 8, 10, 12, 14, 0])


@dataclass(frozen=True)
class Training:
    """A program, the whole texts and categories of its ranges, and its waits."""

    program: Program
    texts: list[str]
    categories: list[str]
    waits: list[Wait]

    def profile(self) -> TrainingProfile:
        p = self.program
        return TrainingProfile(
            p.profile(), p.texts, self.texts, self.categories, (NAMES | FURTHER).__getitem__
        )

    def capture(self) -> Capture:
        made = report_of(self.program)
        category = np.array([{"module": 0}.get(c, MISSING) for c in self.categories])
        ranges = made.ranges.replace(category=frames.Names(category, ["module"]))
        columns = {
            c: np.array([getattr(wait, c) for wait in self.waits], np.int64)
            for c in ("report", "process", "correlation", "start", "end")
        }
        kind = frames.Names(
            np.array([frames.WAIT_KINDS.index(wait.kind) for wait in self.waits], np.int64),
            frames.WAIT_KINDS,
        )
        waits = frames.Waits(columns | {"kind": kind})
        return replace(made, ranges=ranges, waits=waits, texts=Texts.of(self.texts))

    def attributed(self, **how) -> AttributedCapture:
        return AttributedCapture.of(self.capture(), AttributionOptions(**{"adopt": False, **how}))


def training(ranges: Sequence[tuple[Range, str]], calls=(), activities=(), waits=(), module=()):
    """Make a training of ranges with their whole texts; ``module`` are the rows with that category."""
    texts = [text for _, text in ranges]
    names = [without_per_call_part(text) for text in texts]
    ops = [replace(one, op=op_of(name)) for (one, _), name in zip(ranges, names, strict=True)]
    categories = ["module" if row in module else "" for row in range(len(ranges))]
    program = Program(ops, list(calls), list(activities), names)
    return Training(program, texts, categories, list(waits))


@st.composite
def trainings(draw, *, nested: bool = False, phases: int = 1) -> Training:
    """Draw a training; ``nested`` leaves out ranges that cross others of their thread.

    Of ten ranges so many as ``phases`` says are start/end ranges.
    """
    names = draw(st.sampled_from([list(PLAIN), list(NAMES)]))
    ranges = draw(_some(_ranges(names, phases)))
    ranges = list(
        zip(not_only_phases([one for one, _ in ranges]), [text for _, text in ranges], strict=True)
    )
    if nested:
        ranges = _nested(ranges)
    calls = draw(_some(_calls([one for one, _ in ranges])))
    activities = draw(_some(_activities(calls)))
    waits = draw(st.lists(_waits(calls), max_size=5))
    many = range(len(ranges))
    module = (
        draw(st.sets(st.sampled_from(many), max_size=2))
        if ranges and MODULES.keys() <= {*names}
        else ()
    )
    return training(ranges, calls, activities, waits, module)


def _some(of):
    """Draw a list that may be empty but mostly is not short."""
    return st.integers(0, 9).flatmap(
        lambda n: st.lists(of, min_size=8, max_size=12) if n < 9 else st.lists(of, max_size=3)
    )


def _nested(ranges):
    kept: list[tuple[Range, str]] = []
    for one, text in ranges:
        if not any(_cross(one, other) or _cross(other, one) for other, _ in kept):
            kept.append((one, text))
    return kept


def _cross(one: Range, other: Range) -> bool:
    same = (one.report, one.thread) == (other.report, other.thread)
    return same and one.start < other.start < one.end < other.end


@st.composite
def _ranges(draw, names, phases):
    """Draw a range: one of any name anywhere, a numbered call, or one that is backward and comes later."""
    role = draw(st.sampled_from(["any", "numbered", "backward", "module", "any"]))
    home, start, text = draw(homes), draw(instants), draw(st.sampled_from(names))
    if role == "numbered":
        home, start, text = draw(forward_homes), draw(early), "aten::mm"
    elif role == "backward":
        home, start, text = draw(backward_homes), draw(late), "MmBackward0"
    elif role == "module":
        home, start, text = draw(forward_homes), draw(early), draw(st.sampled_from(names[-3:]))
    times = {"start": start, "end": start + draw(lengths)}
    phase = draw(st.integers(0, 9)) >= 10 - phases
    return Range(**home, **times, op="", phase=phase), text + draw(st.sampled_from(CALLS))


@st.composite
def _calls(draw, ranges: Sequence[Range]):
    """Draw a call that mostly begins inside a range, or on its edge."""
    home, start = draw(homes), draw(instants)
    if ranges and draw(st.integers(0, 9)) < 8:
        one = draw(st.sampled_from(ranges))
        home = {"report": one.report, "process": one.process, "thread": one.thread}
        start = draw(st.sampled_from([(one.start + one.end) // 2, one.start, one.end - 1, one.end]))
    return Call(**home, correlation=draw(st.integers(1, 30)), start=start, end=start + 1)


@st.composite
def _activities(draw, calls: Sequence[Call]):
    kind = draw(st.sampled_from(["kernel", *KINDS]))
    name = draw(st.sampled_from(KERNELS)) if kind == "kernel" else kind
    start = draw(instants)
    end = draw(st.sampled_from([*[start + draw(lengths)] * 14, start - 1, 0]))
    return Activity(*draw(_issued(calls)), start, end, kind, name, draw(st.integers(-1, 9)))


@st.composite
def _waits(draw, calls: Sequence[Call]):
    start, kind = draw(instants), draw(st.sampled_from(frames.WAIT_KINDS))
    return Wait(*draw(_issued(calls)), start, start + draw(st.integers(-1, 5)), kind)


@st.composite
def _issued(draw, calls: Sequence[Call]):
    """Draw report, process and correlation id, mostly those of a call."""
    if calls and draw(st.integers(0, 9)) < 9:
        call = draw(st.sampled_from(calls))
        return call.report, call.process, call.correlation
    home = draw(homes)
    return home["report"], home["process"], draw(st.integers(-1, 4))
