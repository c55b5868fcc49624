"""Sentences on what failed and what was lost, which stand before everything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bridge.analyze.checks.failures import (
    FailedCalls,
    Failure,
    LostRecords,
    NotRecorded,
    ProgramError,
    as_dicts,
)
from bridge.render import device_work, units
from bridge.render.table import clean

MOST_LINES = 5  # in front of a screen


def lines(found: Sequence[Failure]) -> list[str]:
    """Return a line per failure, and how many more there are."""
    written = [text(one) for one in found[:MOST_LINES]]
    left = len(found) - MOST_LINES
    return written + (
        [f"… and {left} more: bridge advise REPORT --format json"] if left > 0 else []
    )


def text(one: Failure) -> str:
    """Return the sentence on a failure."""
    if isinstance(one, FailedCalls):
        return _failed_calls(one)
    if isinstance(one, ProgramError):
        return (
            f'The program ({_process(one.program, one.pid)}) tells of an error: "{clean(one.line)}"'
        )
    if isinstance(one, NotRecorded):
        return " ".join(device_work.unrecorded(one.what))
    return f'Records were lost. {device_work.PROFILER}: "{clean(one.message)}"'


def _failed_calls(one: FailedCalls) -> str:
    meaning = f": {one.meaning}" if one.meaning else ""
    place = f" in {clean(one.op)}" if one.op else ""
    error = f"{one.number} {one.name}{meaning}"
    parts = [f"{clean(one.call)} failed{place}, {how_often(one)}: {error}"]
    parts.append(f"first at {units.time(one.first_ns)}")
    if one.retried:
        parts.append(f"later calls succeeded after {units.count(one.retried)} of them")
    if one.followed:
        parts.append(
            f"nothing of CUDA works after it: {units.count(one.followed)} later calls returned it again"
        )
    if one.after:
        after_op = f" in {clean(one.after_op)}" if one.after_op else ""
        parts.append(f"the last launch before it: {clean(one.after)}{after_op}")
    if one.all_launches:
        parts.append("no launch of this report worked")
    return "; ".join(parts) + "."


def how_often(one: FailedCalls) -> str:
    """Return how many of the calls of a function failed."""
    if one.count == one.of:
        return "its only call" if one.of == 1 else f"all {units.count(one.of)} calls"
    return f"{units.count(one.count)} of {units.count(one.of)} calls"


def _process(program: str, pid: int) -> str:
    return ", ".join(part for part in (clean(program), f"process {pid}" if pid > 0 else "") if part)


def quoted(found: Iterable[Failure]) -> set[str]:
    """Return the lines that are quoted: they need no second quotation."""
    result = set()
    for one in found:
        if isinstance(one, ProgramError):
            result.add(one.line)
        elif isinstance(one, LostRecords):
            result.add(one.message)
        elif isinstance(one, NotRecorded):
            result |= {*one.what.messages}
    return result


def as_objects(found: Sequence[Failure]) -> list[dict[str, Any]]:
    """Return failures for JSON, each with its sentence."""
    values = zip(found, as_dicts(found), strict=True)
    return [{"kind": value["kind"], "text": text(one), **value} for one, value in values]
