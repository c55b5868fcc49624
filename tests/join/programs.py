"""Programs that hypothesis makes up, and reports of them without any file.

Times and ids come from so few that ties, twins, crossings and collisions are the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from witness.attribution import CALL_ID, LIBRARIES, Activity, Call, Profile, Range

from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.frames import ACTIVITY_KINDS as KINDS
from bridge.importers.texts import Texts
from bridge.join.attributed import AttributedCapture
from bridge.join.options import AttributionOptions

PROCESSES = (7 << 24, 8 << 24, -(1 << 60) + (7 << 24))  # the last as of a hardware id of 128 and up
DOMAINS = {0: "", 1: "mine", 2: "NCCL", 3: ""}  # 0 is the default domain, 3 was never declared
CALL_IDS = [CALL_ID << 48 | number for number in (1, 2)]
KERNELS = ("gemm", "relu")

instants = st.integers(-3, 9)
lengths = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 12, 14])
# Most happens on one thread, or ranges and calls would seldom meet.
elsewhere = [
    (report, process, number) for report in (0, 1) for process in PROCESSES for number in (1, 2)
]
threads = st.sampled_from([elsewhere[0]] * 36 + elsewhere).map(
    lambda home: {"report": home[0], "process": home[1], "thread": home[1] | home[2]}
)


@dataclass(frozen=True)
class Program:
    """Records, and the text behind each range's op."""

    ranges: list[Range]
    calls: list[Call]
    activities: list[Activity]
    texts: list[str]

    def profile(self) -> Profile:
        return Profile(self.ranges, self.calls, self.activities)


def op_of(text: str) -> str:
    return "ProfilerStep" if text.startswith("ProfilerStep#") else text


@st.composite
def programs(draw) -> Program:
    """Draw a whole program."""
    ranges, texts = [], []
    for one, text in draw(_some(_ranges())):
        if not _inside_its_own_call(one, ranges):
            ranges.append(one)
            texts.append(text)
    ranges = not_only_phases(ranges)
    calls = draw(_some(_calls(ranges)))
    activities = draw(_some(_activities(calls)))
    return without_libraries(Program(ranges, calls, activities, texts))


def not_only_phases(ranges: Sequence[Range]) -> list[Range]:
    """Let the ranges of a report that are all phases be push/pop ranges: phases alone are ops."""
    pushed = {one.report for one in ranges if not one.phase}
    return [replace(one, phase=one.phase and one.report in pushed) for one in ranges]


@st.composite
def phase_programs(draw) -> Program:
    """Draw a program in which all ranges of the first report are phases."""
    program = draw(programs())
    ranges = [replace(one, phase=one.phase or one.report == 0) for one in program.ranges]
    return replace(program, ranges=ranges)


def _some(of):
    """Draw a list that may be empty but mostly is not short."""
    return st.one_of(st.lists(of, max_size=3), *[st.lists(of, min_size=5, max_size=12)] * 3)


@st.composite
def _ranges(draw):
    thread, start = draw(threads), draw(instants)
    domain = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3]))
    text = draw(
        st.sampled_from(["a", "a", "a", "b", "a/b", "ProfilerStep#1", "ProfilerStep#2", "ncclSend"])
    )
    payload = draw(st.sampled_from([-1, -1, -1, -1, 7, *CALL_IDS]))
    if payload in CALL_IDS:  # all slices of a call have its name
        text = f"coroutine {payload & 0xF}"
    phase = draw(st.integers(0, 7)) == 0
    times = {"start": start, "end": start + draw(lengths)}
    return Range(
        **thread, **times, op=op_of(text), domain=domain, payload=payload, phase=phase
    ), text


@st.composite
def _calls(draw, ranges: Sequence[Range]):
    """Draw a call that mostly begins inside a range, or on its edge."""
    thread, start = draw(threads), draw(instants)
    if ranges and draw(st.integers(0, 3)):
        one = draw(st.sampled_from(ranges))
        thread = {"report": one.report, "process": one.process, "thread": one.thread}
        start = draw(st.sampled_from([one.start, (one.start + one.end) // 2, one.end - 1, one.end]))
    correlation = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 0, -1]))
    return Call(**thread, correlation=correlation, start=start, end=start + draw(lengths))


@st.composite
def _activities(draw, calls: Sequence[Call]):
    """Draw work that mostly was issued by one of the calls, and mostly ends after it starts."""
    if calls and draw(st.integers(0, 4)):
        call = draw(st.sampled_from(calls))
        where = call.report, call.process, call.correlation
    else:
        home = draw(threads)
        where = home["report"], home["process"], draw(st.integers(-1, 5))
    start = draw(instants)
    end = draw(st.sampled_from([0, start - 1, *[start + draw(lengths)] * 18]))
    kind = draw(st.sampled_from(["kernel", *KINDS]))
    name = draw(st.sampled_from(KERNELS)) if kind == "kernel" else kind
    return Activity(*where, start, end, kind, name, draw(st.integers(-1, 9)))


def _inside_its_own_call(one: Range, others: Sequence[Range]) -> bool:
    """What is suspended is not running: slices of one call never overlap."""
    return any(
        (one.report, one.process, one.payload) == (other.report, other.process, other.payload)
        and one.start < other.end
        and other.start < one.end
        for other in others
        if one.payload in CALL_IDS
    )


def without_libraries(program: Program) -> Program:
    """Take the op from ranges in a library's domain: by its name, or by all its texts if it has none."""
    texts: dict[tuple[int, int, int], list[str]] = {}
    for one, text in zip(program.ranges, program.texts, strict=True):
        texts.setdefault((one.report, one.process, one.domain), []).append(text)

    def is_library(one: Range) -> bool:
        name, own = DOMAINS[one.domain], texts[one.report, one.process, one.domain]
        if name:
            return name.lower() in LIBRARIES
        return one.domain != 0 and all(text.startswith("nccl") for text in own)

    ranges = [replace(one, op="") if is_library(one) else one for one in program.ranges]
    return replace(program, ranges=ranges)


def raw(program: Program) -> Program:
    """Let every push/pop range be an op by its whole text and its domain's name."""
    pairs = zip(program.ranges, program.texts, strict=True)
    ranges = [
        replace(one, op=":".join([*filter(None, [DOMAINS[one.domain]]), t])) for one, t in pairs
    ]
    return replace(program, ranges=ranges)


# -- a program as the report of it


def report_of(program: Program) -> Capture:
    ranges = _table("ranges", program.ranges, "start end thread process domain payload report") | {
        "name": _names(program.texts),
        "domain_name": _names([DOMAINS[one.domain] for one in program.ranges]),
        "kind": frames.Names(
            _ints([one.phase for one in program.ranges]), ["push_pop", "start_end"]
        ),
        "text": np.arange(len(program.ranges)),
    }
    called = "start end thread process correlation report"
    calls = _table("launches", program.calls, called) | {
        "name": _names(["cudaLaunch"] * len(program.calls))
    }
    ran = "start end process correlation bytes report"
    activities = _table("activities", program.activities, ran) | {
        "kind": frames.Names(_ints([KINDS.index(a.kind) for a in program.activities]), KINDS),
        **dict.fromkeys(
            ("name", "full_name", "mangled"), _names([a.name for a in program.activities])
        ),
    }
    return Capture(
        source=("one", "other"),
        facts=(Facts(), Facts()),
        ranges=frames.Ranges(ranges),
        launches=frames.Launches(calls),
        activities=frames.Activities(activities),
        texts=Texts.of(program.texts),
        **{kind: frames.FRAMES[kind]() for kind in ("marks", "threads", "processes", "devices")},
    )


def attributed(program: Program, **how) -> AttributedCapture:
    return AttributedCapture.of(report_of(program), AttributionOptions(**how))


def _table(kind, records, columns):
    return {column: _ints([getattr(one, column) for one in records]) for column in columns.split()}


def _ints(values):
    return np.array(values, np.int64)


def _names(names):
    distinct = list(dict.fromkeys(names))
    return frames.Names(_ints([distinct.index(name) for name in names]), distinct)
