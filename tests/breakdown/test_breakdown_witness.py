"""Tables by any dimensions against the slow opinion: of programs made up, of parts of their time, of real profiles."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.compare import same, steps_of
from join.programs import PROCESSES, Program, programs
from join.trainings import FURTHER, NAMES, Training, trainings
from real_parts import NIGHT, corpus_reports
from witness import nsys_export
from witness.breakdown import (
    ACTIVITIES,
    CALLS,
    RANGES,
    Breakdown,
    Counted,
    Details,
    Place,
)
from witness.indexed import indexed
from witness.training import Said, TrainingProfile

import bridge
from bridge.analyze.core.catalog import TABLES
from bridge.analyze.core.catalog.column import COLUMNS as ALL
from bridge.analyze.core.catalog.lookup import rows_of_dimensions
from bridge.analyze.tables.breakdown import breakdown
from bridge.importers import frames
from bridge.importers.arrays import MISSING
from bridge.importers.capture import Capture, Facts
from bridge.join.attributed import AttributedCapture
from bridge.join.options import AttributionOptions
from bridge.report import Report

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("names_as_recorded")]


DIMENSIONS = (*RANGES, *CALLS, *ACTIVITIES)
COLUMNS = {rows: TABLES[rows].names for rows in ("ranges", "calls", "activities")}
ALONE = [(name,) for name in DIMENSIONS]
PAIRS = list(combinations(DIMENSIONS, 2))
TENSOR_CORES = (
    "tensor_core_ns tensor_core_share eligible_ns tensor_core_unknown_ns in_kernels_ns".split()
)
ELSEWHERE = [
    *TENSOR_CORES,
    *ALL["@counters"].names,
    *ALL["@energy"].names,
    *"host_ns api_ns sync_ns queue_ns launch_gap_ns starved_ns bound communication_ns exposed_ns".split(),
]
OF_RANGES = [*ELSEWHERE, *ALL["@costs"].names]  # activities have a gb_per_s of their own
FIGURES = {
    rows: [c for c in columns if c not in (OF_RANGES if rows == "ranges" else ELSEWHERE)]
    for rows, columns in COLUMNS.items()
}
SIZES = ["", "", ", sizes = [[2, 3]]", ", sizes = [[2, 3], []]"]
JSONS = [
    "",
    "",
    '{"shapes": [[2, 3]], "dtypes": ["float32"]}',
    '{"shapes": [[4], null], "dtypes": ["float32", null, "int64"]}',
    '{"m": 7}',
]
APIS = ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaFree"]
GEOMETRY = [(-1,) * 9, (8, 2, 1, 128, 1, 1, 32, 1024, 0), (8, 2, 1, 128, 1, 1, 32, 0, 1024)]
GEOMETRY += [(8, 1, 1, 64, 1, 1, 40, -1, 512), (8, 1, 1, 64, 1, 1, 40, -1, 0)]
GPUS = {(0, PROCESSES[0], 0): (1, "A100"), (0, PROCESSES[1], 0): (1, "A100")}
GPUS |= {(0, PROCESSES[0], 1): (0, "A100"), (1, PROCESSES[0], 0): (0, "H100")}
THREADS = {
    (0, PROCESSES[0] | 1): "main",
    (1, PROCESSES[0] | 1): "main",
    (0, PROCESSES[0] | 2): "pt",
}
PROGRAMS = {(0, PROCESSES[0]): "/usr/bin/python", (1, PROCESSES[0]): "train"}
WORDS = NAMES | FURTHER | {"ProfilerStep#2": Said("step", False, "ProfilerStep")}


STRICT = AttributionOptions(adopt=False)  # the truth adopts nothing


@dataclass(frozen=True)
class Made:
    """A training, and what its records leave out."""

    training: Training
    details: Details

    def report(self) -> Report:
        return Report(AttributedCapture.of(self.capture(), STRICT))

    def capture(self) -> Capture:
        report, d = self.training.capture(), self.details
        columns = dict(
            zip(
                "device context stream".split(),
                zip(*((p.device, p.context, p.stream) for p in d.places), strict=True),
                strict=False,
            )
        )
        sizes = "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
        columns |= zip(sizes, zip(*(p.geometry for p in d.places), strict=True), strict=False)
        return replace(
            report,
            facts=tuple(Facts(span=self.span(number)) for number in (0, 1)),
            ranges=report.ranges.replace(json=names(d.jsons, none="")),
            launches=report.launches.replace(name=names(d.apis)),
            activities=report.activities.replace(
                **{c: np.array(v, np.int64) for c, v in columns.items()}
            ),
            threads=listed("threads", "thread", d.threads),
            processes=listed("processes", "process", d.processes),
            devices=gpus(d.gpus),
        )

    def span(self, number: int) -> tuple[int, int]:
        program = self.training.program
        rows = [*program.ranges, *program.calls, *program.activities]
        times = [one for one in rows if one.report == number] or rows
        return min((one.start for one in times), default=0), 99

    def truth(self, joined: Report, counted: Counted) -> Breakdown:
        return Breakdown(self.more(), self.details, steps_of(joined.attributed.iterations), counted)

    def more(self) -> TrainingProfile:
        say: Callable[[str], Said] = lambda name: WORDS.get(name, Said("range", False, name))  # noqa: E731
        return replace(self.training.profile(), say=say)


def names(values, none=None):
    distinct = [name for name in dict.fromkeys(values) if name != none]
    codes = [MISSING if name == none else distinct.index(name) for name in values]
    return frames.Names(np.array(codes, np.int64), distinct)


def listed(table, column, named):
    columns = {"report": [key[0] for key in named], column: [key[1] for key in named]}
    columns = {c: np.array(v, np.int64) for c, v in columns.items()}
    return frames.FRAMES[table](columns | {"name": names(list(named.values()))})


def gpus(known):
    columns = dict(zip("report process device".split(), zip(*known, strict=True), strict=False))
    columns["gpu"] = [gpu for gpu, _ in known.values()]
    columns = {c: np.array(v, np.int64) for c, v in columns.items()}
    return frames.Devices(columns | {"name": names([name for _, name in known.values()])})


@st.composite
def made(draw) -> Made:
    """Draw a program that trains, or one with slices of calls and libraries' ranges, and what goes with it."""
    training = draw(st.one_of(trainings(phases=3), programs().map(plain)))
    program = training.program
    texts = [text + draw(st.sampled_from(SIZES)) for text in training.texts]

    def each(of, rows):
        return [draw(st.sampled_from(of)) for _ in rows]

    wrong = each([False] * 7 + [True], program.calls)
    calls = [
        replace(one, end=one.start - 1) if backwards else one
        for one, backwards in zip(program.calls, wrong, strict=True)
    ]
    program = replace(program, calls=calls)
    geometry = each(GEOMETRY, program.activities)
    places = [
        Place(*draw(st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(7, 8))), sizes)
        for sizes in geometry
    ]
    details = Details(
        apis=each(APIS, program.calls),
        places=places,
        jsons=each(JSONS, program.ranges),
        threads=THREADS,
        processes=PROGRAMS,
        gpus=draw(st.sampled_from([{}, GPUS])),
    )
    return Made(replace(training, program=program, texts=texts), details)


def plain(program) -> Training:
    """Let each process have a pid of its own, that of another machine too."""

    def apart(one):
        moved = {c: getattr(one, c) + (2 << 24) for c in ("process", "thread") if hasattr(one, c)}
        return replace(one, **moved) if one.process == PROCESSES[2] else one

    rows = [list(map(apart, of)) for of in (program.ranges, program.calls, program.activities)]
    program = Program(*rows, program.texts)
    return Training(program, list(program.texts), [""] * len(program.texts), [])


# -- which rows are counted


def everything(truth) -> Counted:
    rows = (truth.profile.ranges, truth.profile.calls, truth.profile.activities)
    return Counted(*(frozenset(range(len(of))) for of in rows))


def by_clock(truth: TrainingProfile, base: int, first: int | None, last: int | None) -> Counted:
    """Choose what began then on the host and what ran then on devices, counted from the first event."""
    profile = truth.profile
    start, end = (-inf if first is None else base + first), (inf if last is None else base + last)

    def began(one) -> bool:
        return start <= one.start < end

    def ran(row: int) -> bool:
        begin = profile.activities[row].start
        return begin < end and (begin + profile.time(row) > start or begin >= start)

    return Counted(
        *(
            frozenset(n for n, one in enumerate(of) if began(one))
            for of in (profile.ranges, profile.calls)
        ),
        frozenset(filter(ran, range(len(profile.activities)))),
        window=(start, end),
    )


def on_host(truth: TrainingProfile, windows) -> Counted:
    """Choose what began in times of processes: (report, process, start, end)."""
    profile = truth.profile

    def began(one, time: int | None) -> bool:
        return time is not None and any(
            (one.report, one.process) == (report, process) and start <= time < end
            for report, process, start, end in windows
        )

    return Counted(
        *(
            frozenset(n for n, one in enumerate(of) if began(one, one.start))
            for of in (profile.ranges, profile.calls)
        ),
        frozenset(n for n, one in enumerate(profile.activities) if began(one, profile.issued(n))),
    )


def window(data, joined: Report, truth: TrainingProfile) -> tuple[Report, Counted]:
    """Draw a part of the time; return the report within it, and what is counted."""
    steps, ranges = steps_of(joined.attributed.iterations), truth.profile.ranges
    ways = ["clock", *(["steps"] if steps else []), *(["range"] if ranges else [])]
    way = data.draw(st.sampled_from(ways))
    if way == "clock":
        first, length = data.draw(st.tuples(st.integers(0, 12), st.integers(1, 9)))
        first, last = data.draw(
            st.sampled_from([(first, first + length), (None, length), (first, None)])
        )
        base = joined.capture.began
        return joined.within(first_ns=first, last_ns=last), by_clock(truth, base, first, last)
    if way == "steps":
        numbers = sorted(data.draw(st.tuples(*[st.sampled_from([s.number for s in steps])] * 2)))
        chosen = [s for s in steps if numbers[0] <= s.number <= numbers[1]]
        windows = [(s.report, s.process, s.start, s.end) for s in chosen]
        return joined.within(steps=tuple(numbers)), on_host(truth, windows)
    ops = {one.op for one in ranges if one.op and not one.phase}
    name = data.draw(st.sampled_from(sorted({*truth.names, *ops})))
    pairs = zip(ranges, truth.names, strict=True)
    chosen = [one for one, own in pairs if name in {own, "" if one.phase else one.op}]
    windows = [(one.report, one.process, one.start, one.end) for one in chosen]
    return joined.within(range_name=name), on_host(truth, windows)


# -- ours against theirs


def assert_same(joined: Report, truth: Breakdown, dimensions) -> None:
    figures = FIGURES[rows_of_dimensions(dimensions)]
    table = breakdown(joined.attributed.only(truth.counted.way), dimensions, figures)
    assert {*figures} <= {*table.columns}
    ours = {}
    columns = [table[name].tolist() for name in table]
    for values in zip(*columns, strict=True):
        row = dict(zip(table, values, strict=True))
        label = tuple(sorted((name, row[name]) for name in row if name not in figures))
        assert label not in ours, "two rows of one name"
        ours[label] = {name: row[name] for name in figures}
    same(ours, truth.rows(dimensions))


@given(one=made(), data=st.data())
def test_of_a_whole_program(one, data):
    joined = one.report()
    truth = one.truth(joined, everything(one.more()))
    assert_same_each_way(joined, truth, data)


@given(one=made(), data=st.data())
def test_of_a_part_of_its_time(one, data):
    within, counted = window(data, one.report(), one.more())
    assert_same_each_way(within, one.truth(within, counted), data)


def assert_same_each_way(joined: Report, truth: Breakdown, data) -> None:
    """Compare some tables of both directions together and of each: others each time."""
    some = st.lists(st.sampled_from([*ALONE, *PAIRS]), min_size=3, max_size=3)
    for way in ("both", "forward", "backward"):
        of_way = replace(truth, counted=replace(truth.counted, way=way))
        for dimensions in data.draw(some, label=way):
            assert_same(joined, of_way, dimensions)


# -- real profiles

SMALL = ("vector-add", "nvfuser", "memcpy-heavy", "transformer-annotated", "torch-compile-graphs")
HERE = {"module", "direction", "dtype"}  # what names and details say of these has tests of its own
SIZES_OF = "gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory".split()


def real(path: Path, joined: Report) -> Breakdown:
    read = nsys_export.read(path)
    named = [nsys_export.without_per_call_part(text) for text in read.texts]
    profile = indexed(read.ranges, read.calls, read.activities)
    more = TrainingProfile(
        profile, named, read.texts, [""] * len(named), lambda name: Said("range", False, name)
    )
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as export:
        details = details_of(export, read, path.name)
    return Breakdown(more, details, steps_of(joined.attributed.iterations), everything(more))


def details_of(export, read: nsys_export.Plain, source: str) -> Details:
    def rows(sql: str) -> list[tuple]:
        return export.execute(sql).fetchall()

    apis = rows(
        "SELECT value FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = nameId ORDER BY r.rowid"
    )
    tables = {name for (name,) in rows("SELECT name FROM sqlite_master")}
    places = []
    for kind in nsys_export.KINDS:
        if f"CUPTI_ACTIVITY_KIND_{kind}" in tables:
            sizes = ", ".join(SIZES_OF if kind == "KERNEL" else ["-1"] * len(SIZES_OF))
            where = f"deviceId, contextId, streamId, {sizes} FROM CUPTI_ACTIVITY_KIND_{kind}"
            places += [Place(*row[:3], row[3:]) for row in rows(f"SELECT {where} ORDER BY rowid")]
    threads = rows(
        "SELECT globalTid, value FROM ThreadNames JOIN StringIds s ON s.id = nameId ORDER BY priority"
    )
    gpu = dict(rows("SELECT id, name FROM TARGET_INFO_GPU"))
    programs = rows("SELECT globalPid, name FROM PROCESSES") if "PROCESSES" in tables else []
    return Details(
        apis=[re.sub(r"_v\d+$", "", name) for (name,) in apis],
        places=places,
        jsons=[""] * len(read.ranges),
        sources=(source,),
        threads={(0, thread): name for thread, name in threads},
        processes={(0, process): name for process, name in programs},
        gpus={
            (0, one.process, place.device): (place.device, gpu[place.device])
            for one, place in zip(read.activities, places, strict=True)
        },
    )


@pytest.mark.parametrize("path", corpus_reports(names=SMALL))
def test_of_real_profiles(path):
    """Whole, and of the second quarter of its time."""
    joined = bridge.load(path)
    truth = real(path, joined)
    first, last = joined.capture.facts[0].span
    quarter = (last - first) // 4
    part = joined.within(first_ns=quarter, last_ns=2 * quarter)
    of_part = replace(truth, counted=by_clock(truth.truth, first, quarter, 2 * quarter))
    for dimensions in [*ALONE, *PAIRS[:: 2 if NIGHT else 9]]:
        if not HERE & {*dimensions}:
            assert_same(joined, truth, dimensions)
            assert_same(part, of_part, dimensions)
