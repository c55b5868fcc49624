"""The aggregates of MXNet's `dumps`: per domain and name how often, how long, how much.

The invariant: a call that has not ended is not counted; a counter is counted by its samples, each once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from bridge.compat.calls import Call, Happened, finite, spent

MEMORY = "memory"  # the domain that a session samples memory in
OPERATORS = "operator"
MS, KB = 1_000_000, 1000
TIME, USE, COUNTED = "Time", "Memory", "Counter"
SORTED_BY = ("total", "avg", "min", "max", "count")


@dataclass(frozen=True)
class Row:
    """A name of a block; of counters `total` is the last sample."""

    name: str
    count: int
    total: float
    min: float
    max: float
    avg: float


Blocks = dict[str, list[Row]]  # by domain

HEADS = {
    TIME: ("Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)"),
    USE: ("Min Use (kB)", "Max Use (kB)", "Avg Use (kB)"),
    COUNTED: ("Last Value", "Min Value", "Max Value", "Avg Value"),
}


def blocks(recorded: Happened, since: int = 0) -> dict[str, Blocks]:
    """Return all rows by kind and domain; what ended before ``since``, in ns, is left out."""
    by_domain: dict[str, list[Call]] = {}
    for call in recorded.calls:
        if call.end >= since:
            by_domain.setdefault(domain_of(call), []).append(call)
    times = {domain: _rows(_times(calls)) for domain, calls in by_domain.items()}
    memory: dict[str, dict[str, list[float]]] = {}
    counted: dict[str, dict[str, list[float]]] = {}
    for one in recorded.instants:
        if one.value is not None and finite(one.value) and one.time >= since:
            of = (one.value / KB, memory) if one.domain == MEMORY else (one.value, counted)
            of[1].setdefault(one.domain, {}).setdefault(one.name, []).append(of[0])
    return {
        TIME: {domain: rows for domain, rows in times.items() if rows},
        USE: {"Device Storage": _samples(memory[MEMORY])} if memory else {},
        COUNTED: {domain: _samples(values) for domain, values in counted.items()},
    }


def domain_of(call: Call) -> str:
    """Return the domain of a call; what has none is told by its category, and else an operator."""
    return call.domain or call.category or OPERATORS


def ordered(
    kinds: Mapping[str, Blocks], sort_by: str, ascending: bool
) -> Iterable[tuple[str, str, list[Row]]]:
    """Give kind, domain and sorted rows; raises ValueError for what cannot be sorted by."""
    if sort_by not in SORTED_BY:
        raise ValueError(f"dumps: no sort_by {sort_by!r}: one of {', '.join(SORTED_BY)}")
    key: Callable[[Row], float] = lambda row: getattr(row, sort_by)  # noqa: E731 (one of two functions)
    for kind, found in kinds.items():
        for domain, rows in found.items():
            yield kind, domain, sorted(rows, key=key, reverse=not ascending)


def table(kinds: Mapping[str, Blocks], sort_by: str, ascending: bool) -> str:
    """Write a block for each domain."""
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    for kind, domain, rows in ordered(kinds, sort_by, ascending):
        width = max(28, *(len(row.name) for row in rows))
        heads = ("Name", "Total Count", *HEADS[kind])
        lines += [
            domain,
            "=" * 17,
            _line(heads, width),
            _line(["-" * len(h) for h in heads], width),
        ]
        for row in rows:
            total = () if kind == USE else (row.total,)
            values = (*total, row.min, row.max, row.avg)
            lines.append(_line([row.name, str(row.count), *(f"{v:.4f}" for v in values)], width))
        lines.append("")
    return "\n".join(lines) + "\n"


def as_json(kinds: Mapping[str, Blocks], sort_by: str, ascending: bool) -> str:
    """Write the same as JSON; counters other than memory's are there if there are any."""
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {TIME: {}, USE: {}}
    for kind, domain, rows in ordered(kinds, sort_by, ascending):
        of_domain = {
            row.name: {
                "Count": row.count,
                "Total": row.total,
                "Min": row.min,
                "Max": row.max,
                "Avg": row.avg,
            }
            for row in rows
        }
        found.setdefault(kind, {})[domain] = of_domain
    return json.dumps({**found, "Unit": {"Time": "ms", "Memory": "kB"}}, indent=4)


def _line(cells: Iterable[str], width: int) -> str:
    name, *others = cells
    return f"{name:<{width}}" + "".join(f"{cell:>17}" for cell in others)


def _times(calls: Iterable[Call]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, ns in spent(calls):
        found.setdefault(name, []).append(ns / MS)
    return found


def _rows(times: Mapping[str, list[float]]) -> list[Row]:
    return [_row(name, values, sum(values)) for name, values in times.items()]


def _samples(values: Mapping[str, list[float]]) -> list[Row]:
    return [_row(name, samples, samples[-1]) for name, samples in values.items()]


def _row(name: str, values: list[float], total: float) -> Row:
    return Row(name, len(values), total, min(values), max(values), fmean(values))


WRITERS = {"table": table, "json": as_json}
