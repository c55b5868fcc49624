"""Exports that tell less than was recorded: as captures are that were cut, or made with fewer options.

Each function takes the rows of an export and returns others; the rows it gets stay as they are. `known` says what is
true of any export, from its rows alone: the length of the run and the states of its GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from simulated.chance import mixed, number_of
from simulated.device import Kind
from simulated.export import COLUMNS, Rows, rows_of
from simulated.programs import Result
from simulated.span import IDLE, Interval, union

Row = Sequence[object]
CALLS, NVTX, OS_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API"
SYNCS, EVENTS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
KERNELS, COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS, GRAPHS = "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
WORKS = (KERNELS, COPIES, FILLS, GRAPHS)
# Where the number of the process, or of a thread of it, stands.
PROCESS_COLUMN = {CALLS: 3, NVTX: 7, **dict.fromkeys(WORKS, 6)}
TIMED = (CALLS, OS_CALLS, SYNCS, "PROFILER_OVERHEAD", *WORKS)
CLOCK_NS, CLOCK_PERIOD_NS = 2_000, 100_000_000


def without_os_calls(rows: Rows) -> Rows:
    """Return an export that was recorded without the calls of the operating system."""
    return _without(rows, OS_CALLS)


def without_syncs(rows: Rows) -> Rows:
    """Return an export without synchronization records and events, as old versions write it."""
    return _without(rows, SYNCS, EVENTS, "TARGET_INFO_CUDA_STREAM", "TARGET_INFO_CUDA_CONTEXT_INFO")


def without_ranges(rows: Rows) -> Rows:
    """Return an export of a program without NVTX."""
    return _without(rows, NVTX)


def cut(rows: Rows, window: Interval) -> Rows:
    """Return what a collection between two instants sees.

    A call that began before is not recorded, though its work may be; of ranges those that began within, without an
    end if it lies behind.
    """
    first, last = window
    tables = dict(rows.tables)
    for table in TIMED:
        tables[table] = [
            row
            for row in rows.tables.get(table, [])
            if _int(row[0]) >= first and _int(row[1]) <= last
        ]
    tables[NVTX] = [
        row if _int(row[1]) <= last else (row[0], None, *row[2:])
        for row in rows.tables.get(NVTX, [])
        if first <= _int(row[0]) <= last
    ]
    tables["ANALYSIS_DETAILS"] = [(0, last, 0, last)]
    return Rows(tables, rows.strings)


def with_lost_rows(rows: Rows, share: float, seed: int) -> Rows:
    """Return an export that has lost a share of its kernels and calls."""
    limit = int(share * (1 << 64))
    tables = dict(rows.tables)
    for table in (KERNELS, CALLS):
        tables[table] = [
            row
            for number, row in enumerate(rows.tables.get(table, []))
            if mixed(seed, number_of(table), number) >= limit
        ]
    return Rows(tables, rows.strings)


def with_clock_error(rows: Rows, seed: int) -> Rows:
    """Return an export whose GPU clocks are off by up to 2 µs, more and less in the course of time."""
    tables = dict(rows.tables)
    column = COLUMNS[KERNELS].split().index("deviceId")
    for table in WORKS:
        tables[table] = [
            (_int(row[0]) + error, _int(row[1]) + error, *row[2:])
            for row in rows.tables.get(table, [])
            for error in [_clock_error(_int(row[0]), _int(row[column]), seed)]
        ]
    return Rows(tables, rows.strings)


def _clock_error(time: int, device: int, seed: int) -> int:
    phase = mixed(seed, device) % 1_000 / 1_000
    return round(CLOCK_NS * math.sin(2 * math.pi * (phase + time / CLOCK_PERIOD_NS)))


def _without(rows: Rows, *names: str) -> Rows:
    tables = {name: table for name, table in rows.tables.items() if name not in names}
    return Rows(tables, rows.strings)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


# -- By name

DEGRADED: dict[str, Callable[[Rows, int], Rows]] = {
    "whole": lambda rows, seed: rows,
    "without_os_calls": lambda rows, seed: without_os_calls(rows),
    "without_syncs": lambda rows, seed: without_syncs(rows),
    "without_ranges": lambda rows, seed: without_ranges(rows),
    "begins_in_the_middle": lambda rows, seed: cut(rows, _middle(rows, 0.35, 1.0)),
    "ends_in_the_middle": lambda rows, seed: cut(rows, _middle(rows, 0.0, 0.7)),
    "lost_rows": lambda rows, seed: with_lost_rows(rows, 0.01, seed),
    "clock_error": with_clock_error,
    "whole_graphs": lambda rows, seed: rows,  # made so by `degraded_rows`
}


def degraded_rows(result: Result, name: str) -> Rows:
    """Return the rows of a run's export, degraded in one of the ways of `DEGRADED`."""
    recorded = [process for process in result.machine.processes if process.recorded]
    rows = rows_of(result.machine, recorded, whole_graphs=name == "whole_graphs")
    return DEGRADED[name](rows, result.program.seed)


def write_degraded(result: Result, name: str, path: Path) -> Path:
    """Write the export of a run, degraded in one of the ways of `DEGRADED`."""
    return degraded_rows(result, name).written(path)


def _middle(rows: Rows, first: float, last: float) -> Interval:
    start, end = known_span(rows)
    return round(start + (end - start) * first), round(start + (end - start) * last)


# -- What is true of rows


def known_span(rows: Rows) -> Interval:
    """Return the first start and the last end of ranges, calls, OS calls and work; an open range counts by its start.

    Calls of the operating system count of processes that have anything else.
    """
    timed = [row for table in (CALLS, NVTX, *WORKS) for row in rows.tables.get(table, [])]
    processes = {
        _int(row[PROCESS_COLUMN[table]]) >> 24
        for table in (CALLS, NVTX, *WORKS)
        for row in rows.tables.get(table, [])
    }
    timed += [row for row in rows.tables.get(OS_CALLS, []) if _int(row[3]) >> 24 in processes]
    ends = (_int(row[0] if row[1] is None else row[1]) for row in timed)
    return min(_int(row[0]) for row in timed), max(ends)


def known_states(rows: Rows) -> dict[int, dict[str, int]]:
    """Return the states of each GPU (by its number) in the run, by the first that applies; they add up."""
    span, names = known_span(rows), {number: text for text, number in rows.strings.items()}
    gpus = {(_int(pid), _int(device)): _int(gpu) for gpu, device, pid, *_ in _devices(rows)}
    intervals: dict[int, list[list[Interval]]] = {}
    for table, kind in zip(WORKS, (Kind.COMPUTE, Kind.COPY, Kind.FILL, Kind.GRAPH), strict=True):
        for row in rows.tables.get(table, []):
            pid = _int(row[6]) >> 24 & 0xFFFFFF
            short = names[_int(row[8])] if table == KERNELS else ""
            state = Kind.COMMUNICATION if short.startswith("nccl") else kind
            lists = intervals.setdefault(gpus[pid, _int(row[2])], [[] for _ in Kind])
            lists[list(Kind).index(state)].append((_int(row[0]), _int(row[1])))
    return {gpu: _added_up(lists, span) for gpu, lists in sorted(intervals.items())}


def _devices(rows: Rows) -> list[Row]:
    return rows.tables["TARGET_INFO_CUDA_DEVICE"]


def _added_up(lists: list[list[Interval]], span: Interval) -> dict[str, int]:
    result, covered = {}, 0
    below: list[Interval] = []
    for kind, intervals in zip(Kind, lists, strict=True):
        below += intervals
        length = sum(end - start for start, end in union(below, span))
        result[kind.value], covered = length - covered, length
    return {**result, IDLE: span[1] - span[0] - covered}
