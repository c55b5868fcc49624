"""Reports that hypothesis makes up, of programs whose calls and ops have telling names; and a report as a `History`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from critical.records import Records, thread
from critical.test_against_loops import records
from hypothesis import strategies as st
from join.programs import Program, op_of, programs, report_of
from witness import attribution
from witness.causes import Activity, Call, History, Range

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.kinds import is_compilation, is_data_loading
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import INVALID_TIME
from bridge.join.options import AttributionOptions

CALLS = (
    *("cudaLaunchKernel", "cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"),
    *("cudaMalloc", "cudaEventQuery", "cudaMemcpyAsync", "cudaMemcpyAsync", "cudaMemsetAsync"),
    *("cudaMemcpy", "cuMemcpyDtoH", "cudaStreamSynchronize", "cuCtxSynchronize"),
    *("cuModuleLoadData", "cuLibraryGetKernel"),
)
LOADING, COMPILING = "data loading", "torch.compile"
RENAMED = {"a/b": LOADING, "ProfilerStep#2": COMPILING}
TO_HOST = 2
P, Q = 7 << 24, 8 << 24


@dataclass(frozen=True)
class Made:
    """A program, and what `Program` does not say."""

    program: Program
    called: tuple[str, ...]
    devices: tuple[int, ...]
    directions: tuple[int, ...]

    def capture(self) -> Capture:
        made = report_of(self.program)
        activities = made.activities.replace(
            device=np.array(self.devices, np.int64), copy_kind=np.array(self.directions, np.int64)
        )
        launches = made.launches.replace(name=frames.Names.of(self.called))
        return replace(made, activities=activities, launches=launches)

    def attributed(self, **how) -> AttributedCapture:
        return AttributedCapture.of(self.capture(), AttributionOptions(**how))


def _several(of, size):
    return st.lists(of, min_size=size, max_size=size).map(tuple)


@st.composite
def made(draw) -> Made:
    """Draw a program: an odd one, where ties, twins and collisions are the rule, or one in which GPUs wait."""
    program = draw(st.one_of(odd(), waiting(), waiting(), waiting()))
    ran = len(program.activities)
    return Made(
        program,
        draw(_several(st.sampled_from(CALLS), len(program.calls))),
        draw(_several(st.sampled_from([0, 0, 0, 1]), ran)),
        tuple(
            draw(st.sampled_from([1, TO_HOST, TO_HOST])) if one.kind == "memcpy" else -1
            for one in program.activities
        ),
    )


@st.composite
def odd(draw) -> Program:
    """Draw any program; some of its ops load data or compile."""
    program = draw(programs())
    texts = [RENAMED.get(text, text) for text in program.texts]
    ranges = [
        replace(one, op=op_of(text) if one.op else "")
        for one, text in zip(program.ranges, texts, strict=True)
    ]
    return replace(program, ranges=ranges, texts=texts)


@st.composite
def waiting(draw) -> Program:
    """Draw a program of short work, far apart, that several threads launch."""
    lengths = st.sampled_from([*range(6), -1])
    threads = st.sampled_from([(0, P, P | 1)] * 4 + [(0, P, P | 2)] * 3 + [(0, Q, Q | 1)])
    ranges, texts, calls, ran = [], [], [], []
    for _ in range(draw(st.integers(0, 9))):
        (report, process, thread), start = draw(threads), draw(st.integers(0, 50))
        op = draw(st.sampled_from([*"aabbc", LOADING, LOADING, COMPILING]))
        end = start + draw(st.integers(1, 25))
        ranges.append(attribution.Range(report, process, thread, start, end, op))
        texts.append(op)
    for number in range(1, draw(st.integers(2, 10))):
        (report, process, thread), start = draw(threads), draw(st.integers(0, 60))
        end = start + draw(st.sampled_from([-1, *range(10)]))
        calls.append(attribution.Call(report, process, thread, number, start, end))
        begin = draw(st.one_of(st.integers(start, start + 16), st.just(max(start, end))))
        kind = draw(st.sampled_from(["kernel", "kernel", "memcpy", "memcpy", "memset"]))
        launched = number if draw(st.integers(0, 19)) else 99
        for length in draw(st.lists(lengths, min_size=1, max_size=2)):
            done = begin + length
            ran.append(attribution.Activity(report, process, launched, begin, done, kind, kind, 1))
    return Program(ranges, calls, ran, texts)


@st.composite
def waits_and_others(draw) -> Records:
    """Draw records whose calls and ops have telling names; if they are of one process, it may use two GPUs."""
    of = draw(records())
    for row in of.calls:
        if row["name"] == "cudaMalloc":
            row["name"] = draw(st.sampled_from(["cudaMalloc", "cuModuleLoadData", "cudaMemset"]))
    for row in of.ranges:
        row["name"] = draw(st.sampled_from(["a", "b", LOADING, COMPILING]))
    for row in of.system:
        row["name"] = draw(st.sampled_from(["read", "getc", "open"]))
    for on in draw(st.lists(st.sampled_from([thread(0), thread(1)]), max_size=3)):
        start = draw(st.integers(1, 40))
        end = start + draw(st.integers(0, 9))
        of.overhead.append({"thread": on, "start": start, "end": end, "name": "flush"})
    several = len({one["process"] for one in of.activities}) < 2
    for row in of.activities:
        if several and draw(st.booleans()):
            row["device"], row["context"] = 1, 2
    return of


def history_of(joined: AttributedCapture) -> History:
    """Return a report's records, and which call and range each activity belongs to."""
    report, found = joined.capture, joined.attribution
    op = [joined.ops[code] if code >= 0 else "" for code in joined.op.tolist()]
    kept = {row: place for place, row in enumerate(row for row, name in enumerate(op) if name)}
    ranges = [
        Range((of, thread), start, end, op[row])
        for row, (of, thread, start, end) in enumerate(
            _rows(report.ranges, "report thread start end")
        )
        if op[row]
    ]
    names = report.launches["name"].tolist()
    calls = [
        Call((of, thread), process, start, end, name)
        for (of, thread, process, start, end), name in zip(
            _rows(report.launches, "report thread process start end"), names, strict=True
        )
    ]
    said = dict(zip(joined.ops, is_data_loading(joined).tolist(), strict=False))
    compiled = dict(zip(joined.ops, is_compilation(joined).tolist(), strict=False))
    ran = _ran(joined, found, kept)
    home = zip(Devices.of_report(joined).gpu.tolist(), report.activities["report"], strict=True)
    runs = {gpu: _run(report, of) for gpu, of in set(home)}
    return History(ranges, calls, ran, said.__getitem__, compiled.__getitem__, runs)


def _run(capture, number) -> tuple[int, int]:
    """Return the first and the last event of a report: an open range counts by its start."""
    edges, processes = [], set()
    for table in (capture.ranges, capture.launches, capture.activities):
        is_open = table["open"].tolist() if "open" in table.types else [False] * len(table)
        rows = zip(_rows(table, "report process start end"), is_open, strict=True)
        for (report, process, start, end), never_ended in rows:
            if report == number:
                processes.add(process)
                edges += [start, start if never_ended else max(start, end)]
    for process, span in capture.facts[number].system_spans.items():
        edges += span if process in processes else ()
    return min(edges), max(edges)


def _ran(joined, found, kept) -> list[Activity]:
    table = joined.capture.activities
    columns = _rows(table, "device start end copy_kind")
    named = zip(table["kind"].tolist(), table["name"].tolist(), strict=True)
    gpus = Devices.of_report(joined).gpu.tolist()
    belongs = zip(found.launch.tolist(), found.range.tolist(), found.reason.tolist(), strict=True)
    return [
        Activity(
            row,
            gpus[row],
            device,
            start,
            end,
            kind,
            name,
            to_host=direction == TO_HOST,
            valid=reason != INVALID_TIME,
            launch=launch,
            range=kept.get(owner, -1),
        )
        for row, (
            (device, start, end, direction),
            (kind, name),
            (launch, owner, reason),
        ) in enumerate(zip(columns, named, belongs, strict=True))
    ]


def _rows(table, columns):
    return list(zip(*(table[c].tolist() for c in columns.split()), strict=True))
