"""Phases as ops: a report whose ranges are all start/end ranges has nothing else to call its work by.

Any thread may end a start/end range, so the phases of a process are one stack, whatever thread they
began on. The innermost one is that which started last of those open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.importers.records import record
from bridge.join.arrays import Flags, Ints
from bridge.join.attribution import (
    BY_LAUNCH,
    BY_PHASE,
    Activities,
    Attribution,
    Creations,
    Launches,
    Ranges,
    attribute,
)
from bridge.join.nesting import Nesting, TangledError

# The phase that a session opens in its active steps, which is no work of the program;
# `bridge.capture.session.control` names it, too.
SESSION_DOMAIN, SESSION_NAME = "nsight-bridge", "capture"
AS_OPS = "only start/end ranges: shown as ops (bridge report --names raw keeps them as phases)"
TOO_MANY = (
    "only start/end ranges, which overlap too often to be shown as ops:"
    " bridge report REPORT --by phase lists them"
)


@dataclass(frozen=True)
class Records:
    """What `attribute` reads of a capture."""

    activities: Activities
    launches: Launches
    ranges: Ranges
    creations: Creations


@record
class PhaseAttribution:
    """An attribution, which ranges are its ops, and lines for the user about phases."""

    attribution: Attribution
    is_op: Flags
    notes: tuple[str, ...] = ()


def reports_of_phases(capture: Capture) -> Flags:
    """Return for each report whether it has ranges that are all start/end ranges."""
    pushed = capture.ranges.kind.among(frames.PUSH_POP)
    if pushed.all():
        return np.zeros(len(capture.facts), bool)
    report, size = capture.ranges.report, len(capture.facts)
    has_phases = np.bincount(report[~pushed], minlength=size) > 0
    result: Flags = has_phases & (np.bincount(report[pushed], minlength=size) == 0)
    return result


def is_session(capture: Capture) -> Flags:
    """Return which ranges are the phases of a session's active steps."""
    ranges = capture.ranges
    return ranges.name.among(SESSION_NAME) & ranges.domain_name.among(SESSION_DOMAIN)


def attribute_with_phases(
    capture: Capture, records: Records, *, prefer_capture: bool, phases: bool
) -> PhaseAttribution:
    """Attribute the activities to ops: those push/pop ranges that may be ops.

    With ``phases``, start/end ranges are ops in reports that hold no push/pop range. Those of a
    report in which they overlap so often that they cannot be nested are no ops. Raises TangledError if push/pop
    ranges cross too often.
    """
    accepted = records.ranges.is_op
    is_op = accepted & capture.ranges.kind.among(frames.PUSH_POP)
    ranges = replace(records.ranges, is_op=is_op)
    of_phases = reports_of_phases(capture) if phases else np.zeros(len(capture.facts), bool)
    as_ops = accepted & of_phases[ranges.report]
    if as_ops.any():
        as_ops &= ~is_session(capture)
    if not as_ops.any():
        return PhaseAttribution(_attribute(replace(records, ranges=ranges), prefer_capture), is_op)
    records = replace(records, ranges=ranges)
    try:
        return _with_ops(
            capture, records, of_phases=of_phases, as_ops=as_ops, prefer_capture=prefer_capture
        )
    except TangledError:
        tangled = _tangled(_by_process(capture, records, of_phases, as_ops), of_phases)
    try:
        rest = of_phases & ~tangled
        found = _with_ops(
            capture,
            records,
            of_phases=rest,
            as_ops=as_ops & rest[ranges.report],
            prefer_capture=prefer_capture,
        )
    except TangledError:  # none is by itself, all together are
        tangled = np.bincount(ranges.report[as_ops], minlength=len(of_phases)) > 0
        none = np.zeros_like(of_phases)
        found = _with_ops(
            capture,
            records,
            of_phases=none,
            as_ops=np.zeros_like(as_ops),
            prefer_capture=prefer_capture,
        )
    return replace(found, notes=(*found.notes, *_notes(capture, tangled, TOO_MANY)))


def _with_ops(
    capture: Capture, records: Records, of_phases: Flags, as_ops: Flags, prefer_capture: bool
) -> PhaseAttribution:
    """Attribute with the phases ``as_ops`` as ops. Raises TangledError if ranges cross too often."""
    by_process = _by_process(capture, records, of_phases, as_ops)
    attribution = _attribute(by_process, prefer_capture)
    by_phase = of_phases[records.activities.report] & (attribution.rule == BY_LAUNCH)
    rule = np.where(by_phase, np.int8(BY_PHASE), attribution.rule)
    concerned = np.bincount(records.ranges.report[as_ops], minlength=len(of_phases)) > 0
    notes = _notes(capture, concerned, AS_OPS)
    return PhaseAttribution(replace(attribution, rule=rule), records.ranges.is_op | as_ops, notes)


def _tangled(by_process: Records, of_phases: Flags) -> Flags:
    """Return for each report whether it is one of phases that overlap too often to be nested."""
    ranges = by_process.ranges
    result = np.zeros(len(of_phases), bool)
    for report in np.flatnonzero(of_phases).tolist():
        rows = np.flatnonzero(ranges.is_op & (ranges.report == report))
        try:
            Nesting.of(ranges.thread[rows], ranges.start[rows], ranges.end[rows])
        except TangledError:
            result[report] = True
    return result


def _attribute(records: Records, prefer_capture: bool) -> Attribution:
    return attribute(
        records.activities,
        records.launches,
        records.ranges,
        records.creations,
        prefer_capture=prefer_capture,
    )


def _by_process(capture: Capture, records: Records, of_phases: Flags, as_ops: Flags) -> Records:
    """Return the records with processes in place of threads in reports of phases, which are ops."""

    def home(table: frames.OfProcesses, report: Ints, thread: Ints) -> Ints:
        return np.where(of_phases[report], table.process, thread)

    launches, ranges, creations = records.launches, records.ranges, records.creations
    return replace(
        records,
        launches=replace(launches, thread=home(capture.launches, launches.report, launches.thread)),
        ranges=replace(
            ranges,
            thread=home(capture.ranges, ranges.report, ranges.thread),
            is_op=ranges.is_op | as_ops,
        ),
        creations=replace(
            creations, thread=home(capture.graph_nodes, creations.report, creations.thread)
        ),
    )


def _notes(capture: Capture, reports: Flags, text: str) -> tuple[str, ...]:
    return tuple(f"{capture.source[n]}: {text}" for n in np.flatnonzero(reports).tolist())
