"""Find invalid rows of a capture: count them, give an example and say how they are handled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridge.analyze.core import correlation
from bridge.importers import frames
from bridge.importers.frames import key_codes
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import KEY, AttributedCapture
from bridge.join.attribution import BY_GUESS, INVALID_TIME
from bridge.join.nesting import Nesting
from bridge.join.paths import CUT, KEPT, MAX_DEPTH

TIMED = ("ranges", "launches", "activities")
BACKWARDS, IMPOSSIBLE = "end before they start", " or at a time that no capture has"
ID_BITS = 40  # of a correlation id; CUPTI's have 32


@dataclass(frozen=True)
class Finding:
    """Rows of a frame that break one rule; ``what`` and ``handled`` are texts for the user."""

    rows: Ints
    frame: str
    what: str
    handled: str


def warnings(attributed: AttributedCapture) -> tuple[str, ...]:
    """Return a line for each rule and file with invalid rows, with the first row as an example.

    What the ops are comes first. A line for each file with wrong correlation ids follows.
    """
    invalid = (line for finding in findings(attributed) for line in _lines(attributed, finding))
    return (*attributed.notes, *invalid, *correlation.warnings(attributed))


def findings(attributed: AttributedCapture) -> Iterator[Finding]:
    """Yield each rule, in order, with the rows that break it."""
    for frame in TIMED:
        early = np.flatnonzero(_early(attributed, frame))
        yield Finding(early, frame, "begin before the session does", "kept, at times below 0")
    for frame, handled in (("ranges", "ignored, so they own nothing"), ("launches", "kept")):
        invalid_rows = np.flatnonzero(_backwards(attributed, frame))
        yield Finding(invalid_rows, frame, f"{BACKWARDS}{IMPOSSIBLE}", handled)
    invalid = np.flatnonzero(_backwards(attributed, "activities"))
    yield Finding(invalid, "activities", f"{BACKWARDS}, at 0{IMPOSSIBLE}", "counted with 0 ns")
    crossing = _crossing(attributed)
    handled = "cut into pieces that nest, so that what is open at any instant stays exact"
    yield Finding(crossing, "ranges", "cross another of their thread and domain", handled)
    text = f"lie below {MAX_DEPTH} others (is a pop missing?)"
    handled = f"paths are cut to the first and last {KEPT} names; call trees end with {CUT}"
    yield Finding(_deep(attributed), "ranges", text, handled)
    repeated = np.flatnonzero(_repeated(attributed))
    text = "have the process and correlation id of an earlier one"
    yield Finding(repeated, "launches", text, "the earliest owns what they issued")
    guessed = np.flatnonzero(attributed.attribution.rule == BY_GUESS)
    text = "have their op from another thread by time alone"
    yield Finding(guessed, "activities", text, "confidence is low; without --adopt they have none")
    text = "count for a range of another thread by time alone"
    yield Finding(
        _adopted(attributed), "ranges", text, "confidence is low; without --adopt they do not"
    )


def wrong_times(attributed: AttributedCapture) -> dict[str, Ints]:
    """Return the rows of ranges, launches and activities with impossible times."""
    return {f: np.flatnonzero(_early(attributed, f) | _backwards(attributed, f)) for f in TIMED}


def _early(attributed: AttributedCapture, frame: str) -> Flags:
    early: Flags = getattr(attributed.capture, frame).start < 0
    return early


def _backwards(attributed: AttributedCapture, frame: str) -> Flags:
    """Return whether each row ends before it starts; for activities also whether it ends at 0."""
    table = getattr(attributed.capture, frame)
    if frame == "activities":
        is_backwards: Flags = attributed.attribution.reason == INVALID_TIME
    else:
        is_backwards = table.end < table.start
    return is_backwards


def _lines(attributed: AttributedCapture, finding: Finding) -> Iterator[str]:
    capture, table = attributed.capture, getattr(attributed.capture, finding.frame)
    report = table.report[finding.rows]
    for number in np.unique(report).tolist():
        rows = finding.rows[report == number]
        yield line(
            capture.source[number],
            finding,
            len(rows),
            f"#{rows[0]} {example_text(table, int(rows[0]))}",
        )


def line(source: str, finding: Finding, rows: int, example: str) -> str:
    """Return the warning about this many rows of a file."""
    return f"{source}: {rows} {finding.frame} {finding.what}: {finding.handled} (first: {example})"


def example_text(table: frames.Timed, row: int) -> str:
    """Return the text of an example: the name and times of a row."""
    return f"{table['name'][row]}, {table.start[row]} to {table.end[row]} ns"


def _crossing(attributed: AttributedCapture) -> Ints:
    """Return the ranges that end after the enclosing range of their thread and domain.

    Only the threads of ranges that were cut for the nesting are examined. Ranges of different
    domains may cross.
    """
    ranges, cut = attributed.capture.ranges, attributed.attribution.nesting.crossed
    if not len(cut):
        return cut
    thread, _ = number_groups(ranges.report, ranges.thread)
    concerned = np.isin(thread, thread[cut]) & (attributed.op != NONE)
    start, end = ranges.start, ranges.end
    rows = np.flatnonzero(concerned & (end > start))
    stack, _ = number_groups(thread[rows], ranges.domain[rows])
    return Nesting.of(stack, start[rows], end[rows], rows).crossed


def _deep(attributed: AttributedCapture) -> Ints:
    """Return the ranges whose path is cut."""
    nesting = attributed.attribution.nesting
    return np.unique(nesting.range[nesting.level >= MAX_DEPTH])


def _adopted(attributed: AttributedCapture) -> Ints:
    """Return the ranges whose parent is on another thread."""
    nesting = attributed.attribution.nesting
    inner = np.flatnonzero(nesting.parent != NONE)
    result: Ints = nesting.range[
        inner[nesting.stack[inner] != nesting.stack[nesting.parent[inner]]]
    ]
    return np.sort(result)


def _repeated(attributed: AttributedCapture) -> Flags:
    """Return whether each API call has the key of an earlier one."""
    launches = attributed.capture.launches
    report, process, id_ = (launches[c] for c in KEY)
    if _all_different(report, process, id_):
        return np.zeros(len(id_), bool)
    is_repeated: Flags = (id_ > 0) & (
        attributed.calls_of(report, process, id_) != np.arange(len(id_))
    )
    return is_repeated


def _all_different(report: Ints, process: Ints, id_: Ints) -> bool:
    """Return whether all keys differ.

    Each key is packed into one integer and sorted, which is fast as ids are nearly in order.
    """
    keys = ((key_codes((report, process))[0] << ID_BITS) + id_)[id_ > 0]
    keys.sort(kind="stable")
    return bool(id_.max(initial=0) < 1 << ID_BITS and (keys[1:] != keys[:-1]).all())
