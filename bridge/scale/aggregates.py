"""The aggregates that a worker sends of one report: its accounting, and tables whose columns add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.core.calltree import self_times
from bridge.analyze.core.catalog.column import ALL_CALLS, ALL_CPU, ALL_GPU, ALL_KERNELS
from bridge.analyze.core.totals import Totals, call_time
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.run.ranks.members import Home
from bridge.analyze.tables.build import making
from bridge.analyze.tables.statistics import TIMES
from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.join.attributed import BOTH
from bridge.join.options import (
    ALL_DOMAINS,
    DEFAULT_DOMAIN,
    AttributionOptions,
    UnknownDomainError,
    accepted_ranges,
)
from bridge.report import Report
from bridge.scale.merging import PartialTable, Times, Wholes, packed
from bridge.scale.requests import PartRequest


@record
class Aggregates:
    """The aggregates of one report.

    Attributes:
        place: the index of the report in the run.
        source: base name of the file.
        facts: facts of the capture, without its recordings.
        totals: the accounting of all activities.
        wholes: denominators of shares, in ns.
        ranges: number of ranges.
        ops: ops that own an activity.
        warnings: warnings for the user.
        tables: tables by name, as `packed` returns them; none where these are kept apart.
        known_by: identity of the content, "" unless requested.
        undeclared: requested domains that the report does not have.
        homes: rank, process id and source of the rank, per process.
        use: use of the GPUs; None if it is not known, as of windows of a report.
        graphs: the accounting of the CUDA graphs that were recorded as a whole; None if it is not
            known, as of runs that an older version stored.

    """

    place: int
    source: str
    facts: Facts
    totals: Totals
    wholes: Wholes
    ranges: int
    ops: frozenset[str]
    warnings: tuple[str, ...]
    tables: Mapping[str, bytes]
    known_by: str = ""
    undeclared: frozenset[str] = frozenset()
    homes: tuple[Home, ...] = ()
    use: Use | None = None
    graphs: Totals | None = None


def aggregates(report: Report, place: int, tables: Sequence[PartRequest]) -> Aggregates:
    capture = report.capture
    return Aggregates(
        place=place,
        source=capture.source[0],
        facts=replace(capture.facts[0], recordings=()),
        totals=report.totals,
        wholes=share_denominators(report),
        ranges=len(capture.ranges),
        ops=owning_ops(report),
        warnings=(*capture.warnings, *report.warnings),
        tables={request.name: packed(table(report, request)) for request in tables},
        homes=tuple(report.ranks.homes),
        use=report.busy,
        graphs=report.graphs,
    )


def table(report: Report, part: PartRequest) -> PartialTable:
    """Return one table of one report, its rows in any order."""
    rows = making(report.attributed, part.request)(part.columns)
    times = [c for c in part.columns if c.endswith(TIMES)]
    labels = [c for c in rows.columns if c not in part.columns]
    return PartialTable(
        {c: label_values(rows[c]) for c in labels},
        {c: rows[c] for c in part.columns if c not in times},
        {c: Times.of(rows[c].tolist()) for c in times},
    )


def label_values(values: np.ndarray) -> np.ndarray:
    """Return a column that names rows as integers or objects."""
    return values.astype(np.int64) if values.dtype.kind in "iu" else values.astype(object)


def share_denominators(report: Report) -> dict[str, int]:
    """Return the denominators of shares, `WHOLES` of `bridge.analyze.core.catalog.column`, in ns."""
    attributed = report.attributed.only(BOTH)
    kernels = report.capture.activities.kind.among(frames.KERNEL)
    nesting = attributed.attribution.nesting
    return {
        ALL_GPU: attributed.whole_ns,
        ALL_KERNELS: int(attributed.duration[kernels & attributed.accounted].sum()),
        ALL_CALLS: int(call_time(attributed)[attributed.accounted_launches].sum()),
        ALL_CPU: int(self_times(nesting).sum()),
    }


def owning_ops(report: Report) -> frozenset[str]:
    op = report.attributed.activity_op
    return frozenset(report.attributed.ops[code] for code in np.unique(op[op != NONE]).tolist())


def undeclared_domains(capture: Capture, attribution_options: AttributionOptions) -> frozenset[str]:
    """Return the requested domains that this report does not have; another report may have them."""
    names = {*attribution_options.only, *attribution_options.exclude_domains} - {ALL_DOMAINS}
    return frozenset(name for name in names if not _has_domain(capture, name))


def _has_domain(capture: Capture, name: str) -> bool:
    try:
        accepted_ranges(capture.ranges, (name,), ())
    except UnknownDomainError:
        return False
    return True


def without_domains(
    attribution_options: AttributionOptions, undeclared: frozenset[str]
) -> AttributionOptions:
    """Return the options without some domains."""
    only = tuple(name for name in attribution_options.only if name not in undeclared)
    excluded = tuple(name for name in attribution_options.exclude_domains if name not in undeclared)
    if attribution_options.only and not only:  # no range of it is an op
        return replace(
            attribution_options, domains=(DEFAULT_DOMAIN,), exclude_domains=(DEFAULT_DOMAIN,)
        )
    return replace(attribution_options, domains=only, exclude_domains=excluded)
