"""Recordings beside a profiler's report: the details of calls, joined to the calls' ranges.

The invariant: a recording belongs to a report only if it is of one of its processes and was written
to while the profiler watched; a range gets details only by its call id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from importers import frames
from importers.errors import NotAReport
from importers.recording.details import PIDS, PROCESS_BITS, with_details
from importers.recording.lines import header, read
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
    ``$BRIDGE_SIDECAR``. Raises NotAReport if none that is given is of the report.
    """
    strict = bool(given)
    ours = _of_processes(
        report, list(_candidates(_files(path, given), strict=strict)), strict=strict
    )
    if given and not ours:
        names = ", ".join(one.name for one in given)
        raise NotAReport(f"{names}: recorded by no process of {path.name}; which report is it of?")
    return with_details(report, [read(one.path) for one in ours])


def _files(path: Path, given: Sequence[Path]) -> Iterator[Path]:
    folders = [path.parent, Path(os.environ.get(FOLDER) or path.parent)]
    for one in dict.fromkeys(given or folders):
        yield from sorted(one.glob(PATTERN)) if one.is_dir() else [one]


def _candidates(paths: Iterable[Path], *, strict: bool) -> Iterator[Candidate]:
    """Return what the first lines say; what is no recording is passed over, unless it was given."""
    for path in paths:
        try:
            head = header(path)
        except (OSError, NotAReport):
            if strict:
                raise
            continue
        if head:
            written = path.stat().st_mtime_ns
            yield Candidate(
                path, int(head["pid"]), str(head.get("host")), int(head["epoch_ns"]), written
            )
        elif strict:
            raise NotAReport(f"{path.name}: not a recording of nsight-bridge")


def _of_processes(report: Report, there: Sequence[Candidate], *, strict: bool) -> list[Candidate]:
    """Pick the recording of each process: of several the one begun last while it was watched."""
    facts = report.facts[0]
    pids = {
        int(pid) >> PROCESS_BITS & PIDS for pid in np.unique(frames.ints(report.ranges, "process"))
    }
    fitting = [one for one in there if one.pid in pids and (strict or _of_this_time(one, facts))]
    here = [one for one in fitting if one.host == facts.metadata.get("host")] or fitting
    latest = {one.pid: one for one in sorted(here, key=lambda one: one.begun)}
    return list(latest.values())


def _of_this_time(one: Candidate, facts: Facts) -> bool:
    if facts.epoch_ns == frames.MISSING:
        return True
    first, last = (facts.epoch_ns + edge for edge in facts.span)
    return one.begun <= last + SLACK_NS and one.written >= first - SLACK_NS
