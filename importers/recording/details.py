"""The details of calls in recordings become the JSON of the calls' ranges.

The invariant: a range gets details only by its process and its call id, and loses nothing that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from importers import frames
from importers.keys import shared
from importers.recording.batches import PROCESS_BITS
from importers.recording.lines import CALL_IDS, Recording
from importers.report import Report
from importers.texts import Ints, unique_names

PIDS = (1 << PROCESS_BITS) - 1


def with_details(report: Report, recordings: Sequence[Recording]) -> Report:
    """Return the report with what recordings say of its calls, as the JSON of their ranges."""
    if not recordings:
        return report
    column = report.ranges["json"]
    (call, said), row = _details(recordings), _row_of_call(report, recordings)
    code, names = frames.codes(column), [*column.cat.categories]
    nothing = np.array([*(name == "" for name in names), True])  # also what has no name at all
    there = (row != frames.MISSING) & nothing[code]
    code[there] = call[row[there]] + len(names)
    facts = replace(report.facts[0], metadata={**report.facts[0].metadata, **metadata(recordings)})
    json = frames.names(*unique_names(code, [*names, *said]))
    return replace(report, ranges=report.ranges.assign(json=json), facts=(facts, *report.facts[1:]))


def _details(recordings: Sequence[Recording]) -> tuple[Ints, list[str]]:
    """Return which of the distinct details each call has, and these as JSON."""
    texts = [text for one in recordings for text in one.details]
    first = np.cumsum([0, *(len(one.details) for one in recordings)])
    codes = [one.columns["calls"][1] + at for one, at in zip(recordings, first, strict=False)]
    return np.concatenate(codes), texts


def _row_of_call(report: Report, recordings: Sequence[Recording]) -> Ints:
    """Return for each range the call of the recordings that it is of, -1 for none."""
    call = np.concatenate([one.columns["calls"][0] for one in recordings]) + CALL_IDS
    process = np.concatenate(
        [np.full(len(one.columns["calls"][0]), one.process) for one in recordings]
    )
    own = [frames.ints(report.ranges, c) for c in ("process", "payload")]
    of_range, of_call = shared([own[0] & (PIDS << PROCESS_BITS), own[1]], [process, call])
    row = np.full(max(of_range.max(initial=0), of_call.max(initial=0)) + 1, frames.MISSING)
    row[of_call] = np.arange(len(of_call))
    return row[of_range]


def metadata(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return what recordings say of their processes, as far as they agree."""
    first, *others = (of_process(one) for one in recordings)
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}


def of_process(found: Recording) -> dict[str, Any]:
    """Return what a recording says of its process, and what the program said of itself."""
    names = ("trace_id", "host", "program")
    own = {key: found.header[key] for key in names if found.header.get(key)}
    ranks = {k: found.header[k] for k in ("rank", "local_rank", "world_size") if k in found.header}
    return own | ranks | found.metadata
