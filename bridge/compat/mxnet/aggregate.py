"""The aggregates of MXNet's `dumps`: count, time and values by domain and name.

Calls that have not ended are not counted; each sample of a counter is counted once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean

from bridge.compat.calls import Call, RecordedEvents, call_times, is_finite
from bridge.knowledge.suggestions import unknown_name

MEMORY = "memory"  # the domain of samples of memory
OPERATORS = "operator"
MS, KB = 1_000_000, 1000
TIME, MEMORY_USE, COUNTER = "Time", "Memory", "Counter"
SORT_KEYS = ("total", "avg", "min", "max", "count")


@dataclass(frozen=True)
class Row:
    """A name in a block; `total` of a counter is its last sample."""

    name: str
    count: int
    total: float
    min: float
    max: float
    avg: float


Blocks = dict[str, list[Row]]  # by domain

HEADINGS = {
    TIME: ("Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)"),
    MEMORY_USE: ("Min Use (kB)", "Max Use (kB)", "Avg Use (kB)"),
    COUNTER: ("Last Value", "Min Value", "Max Value", "Avg Value"),
}


def blocks(recorded: RecordedEvents, since: int = 0) -> dict[str, Blocks]:
    """Return the rows by kind and domain of what ended at or after ``since``, in ns."""
    by_domain: dict[str, list[Call]] = {}
    for call in recorded.calls:
        if call.end >= since:
            by_domain.setdefault(domain_of(call), []).append(call)
    times = {domain: _rows(_times(calls)) for domain, calls in by_domain.items()}
    memory: dict[str, dict[str, list[float]]] = {}
    counters: dict[str, dict[str, list[float]]] = {}
    for instant in recorded.instants:
        if instant.value is not None and is_finite(instant.value) and instant.time >= since:
            sample = (
                (instant.value / KB, memory)
                if instant.domain == MEMORY
                else (instant.value, counters)
            )
            sample[1].setdefault(instant.domain, {}).setdefault(instant.name, []).append(sample[0])
    return {
        TIME: {domain: rows for domain, rows in times.items() if rows},
        MEMORY_USE: _memory_blocks(memory.get(MEMORY, {})),
        COUNTER: {domain: _samples(values) for domain, values in counters.items()},
    }


def _memory_blocks(values: Mapping[str, list[float]]) -> Blocks:
    """Return the samples in MXNet's two blocks: memory in use, and what the allocator holds."""
    blocks: Blocks = {}
    for name, samples in values.items():
        device, _, what = name.rpartition(" ")
        gpu = f"gpu/{device.removeprefix(GPU)}" if device.startswith(GPU) else ""
        block, prefix = (POOL, "Pool") if what == RESERVED else (STORAGE, "Memory")
        row = _row(f"{prefix}: {gpu}" if gpu else name, samples, samples[-1])
        blocks.setdefault(block, []).append(row)
    return blocks


STORAGE, POOL = "Device Storage", "Pool Memory"
GPU, RESERVED = "cuda:", "reserved"

FRAMES = "frame"  # category of frames, and MXNet's suffix of their domain


def domain_of(call: Call) -> str:
    """Return the domain of a call, else its category, else `OPERATORS`; frames are set apart."""
    if call.domain and call.category == FRAMES:
        return f"{call.domain},{FRAMES}"
    return call.domain or call.category or OPERATORS


def sorted_blocks(
    kinds: Mapping[str, Blocks], sort_by: str, ascending: bool
) -> Iterable[tuple[str, str, list[Row]]]:
    """Yield kind, domain and sorted rows by domain; raises ValueError for an unknown key."""
    if sort_by not in SORT_KEYS:
        raise ValueError(f"dumps: {unknown_name('sort_by', sort_by, SORT_KEYS)}")
    key: Callable[[Row], float] = lambda row: getattr(row, sort_by)  # noqa: E731 - typed
    listed = [(d, kind, rows) for kind, values in kinds.items() for d, rows in values.items()]
    for domain, kind, rows in sorted(listed, key=itemgetter(0)):
        yield kind, domain, sorted(rows, key=key, reverse=not ascending)


def table(kinds: Mapping[str, Blocks], sort_by: str, ascending: bool) -> str:
    """Return a text table per domain."""
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    for kind, domain, rows in sorted_blocks(kinds, sort_by, ascending):
        width = max(28, *(len(row.name) for row in rows))
        headings = ("Name", "Total Count", *HEADINGS[kind])
        lines += [
            domain,
            "=" * 17,
            _line(headings, width),
            _line(["-" * len(heading) for heading in headings], width),
        ]
        for row in rows:
            total = () if kind == MEMORY_USE else (row.total,)
            values = (*total, row.min, row.max, row.avg)
            lines.append(
                _line([row.name, str(row.count), *(f"{value:.4f}" for value in values)], width)
            )
        lines.append("")
    return "\n".join(lines) + "\n"


def as_json(kinds: Mapping[str, Blocks], sort_by: str, ascending: bool) -> str:
    """Return the rows as JSON; other counters than memory are included if there are any."""
    result: dict[str, dict[str, dict[str, dict[str, float]]]] = {TIME: {}, MEMORY_USE: {}}
    for kind, domain, rows in sorted_blocks(kinds, sort_by, ascending):
        values = {
            row.name: {
                "Count": row.count,
                "Total": row.total,
                "Min": row.min,
                "Max": row.max,
                "Avg": row.avg,
            }
            for row in rows
        }
        result.setdefault(kind, {})[domain] = values
    return json.dumps({**result, "Unit": {"Time": "ms", "Memory": "kB"}}, indent=4)


def _line(cells: Iterable[str], width: int) -> str:
    name, *others = cells
    return f"{name:<{width}}" + "".join(f"{cell:>17}" for cell in others)


def _times(calls: Iterable[Call]) -> dict[str, list[float]]:
    result: dict[str, list[float]] = {}
    for name, ns in call_times(calls):
        result.setdefault(name, []).append(ns / MS)
    return result


def _rows(times: Mapping[str, list[float]]) -> list[Row]:
    return [_row(name, values, sum(values)) for name, values in times.items()]


def _samples(values: Mapping[str, list[float]]) -> list[Row]:
    return [_row(name, samples, samples[-1]) for name, samples in values.items()]


def _row(name: str, values: list[float], total: float) -> Row:
    return Row(
        name=name,
        count=len(values),
        total=total,
        min=min(values),
        max=max(values),
        avg=fmean(values),
    )


WRITERS = {"table": table, "json": as_json}
