"""Recordings beside a profiler's report: the details of calls, joined to the calls' ranges.

The invariant: a recording belongs to a report only if it is of one of its processes and was written
to while the profiler watched; a range gets details only by its call id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from importers import frames
from importers.errors import NotAReport
from importers.recording.lines import PROCESS_BITS, Recording, header, read
from importers.recording.report import PIDS, with_details
from importers.report import Facts, Report

PATTERN = "bridge-*.jsonl"
FOLDER = "BRIDGE_SIDECAR"
SLACK_NS = 2_000_000_000  # that the clock of a file system may be off


class Candidate(NamedTuple):
    """A recording that is there, by what its first line says."""

    path: Path
    pid: int
    host: str
    begun: int  # ns of the epoch
    written: int  # when it was written to last


def found(report: Report, path: Path, given: Sequence[Path] = ()) -> Report:
    """Return a report of one file with the details of its calls.

    Takes the recordings that are ``given`` (files or folders), else those beside the report and in
    ``$BRIDGE_SIDECAR``, of which a damaged one is a warning. Raises NotAReport for a damaged one that is
    given, and if none that is given is of the report.
    """
    ours = _of_processes(report, list(_candidates(_files(path, given), given)), bool(given))
    if given and not ours:
        names = ", ".join(one.name for one in given)
        raise NotAReport(f"{names}: recorded by no process of {path.name}; which report is it of?")
    whole, problems = _read(ours, strict=bool(given))
    report = with_details(report, whole)
    first, *others = report.facts
    first = replace(
        first,
        warnings=(*first.warnings, *problems),
        recordings=tuple(one.path for one in ours),
    )
    return replace(report, facts=(first, *others))


def any_of(path: Path) -> bool:
    """Tell whether there is any file where recordings of a report are looked for, of it or not."""
    return any(one.exists() for one in _files(path, ()))


def _files(path: Path, given: Sequence[Path]) -> Iterator[Path]:
    folders = [path.parent, Path(os.environ.get(FOLDER) or path.parent)]
    files = (one for place in given or folders for one in _in(place))
    yield from {one.resolve(): one for one in files}.values()


def _in(place: Path) -> list[Path]:
    return sorted(place.glob(PATTERN)) if place.is_dir() else [place]


def _candidates(paths: Iterable[Path], given: Sequence[Path]) -> Iterator[Candidate]:
    """Return what the first lines say; what is no recording is passed over, unless it was given."""
    for path in paths:
        try:
            head = header(path)
            written = path.stat().st_mtime_ns
        except (OSError, NotAReport) as error:
            if path in given:
                reason = error.strerror if isinstance(error, OSError) else None
                raise NotAReport(f"{path}: {reason}" if reason else str(error)) from error
            continue
        yield Candidate(path, head["pid"], str(head.get("host")), head["epoch_ns"], written)


def _of_processes(report: Report, there: Sequence[Candidate], strict: bool) -> list[Candidate]:
    """Pick the recording of each process: of several the one begun last while it was watched."""
    facts = report.facts[0]
    numbers = np.unique(frames.ints(report.ranges, "process"))
    pids = {int(number) >> PROCESS_BITS & PIDS for number in numbers}
    fitting = [one for one in there if one.pid in pids]
    timely = [one for one in fitting if _of_this_time(one, facts)]
    fitting = timely or (fitting if strict else [])  # who names a file knows better than its clock
    here = [one for one in fitting if one.host == facts.metadata.get("host")] or fitting
    latest = {one.pid: one for one in sorted(here, key=lambda one: one.begun)}
    return list(latest.values())


def _of_this_time(one: Candidate, facts: Facts) -> bool:
    if facts.epoch_ns == frames.MISSING:
        return True
    first, last = (facts.epoch_ns + edge for edge in facts.span)
    return one.begun <= last + SLACK_NS and one.written >= first - SLACK_NS


def _read(ours: Sequence[Candidate], *, strict: bool) -> tuple[list[Recording], list[str]]:
    """Return the recordings, and what is wrong with the others."""
    whole, problems = [], []
    for one in ours:
        try:
            whole.append(read(one.path))
        except NotAReport as error:
            if strict:
                raise
            problems.append(f"{error}: its calls are without details")
    return whole, problems
