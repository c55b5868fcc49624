"""The option ``--ncu``: metrics of Nsight Compute for a report with a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options
from bridge.cli.help import report_option
from bridge.cli.options import doing

if TYPE_CHECKING:
    from bridge.importers.ncu.metrics import Metrics
    from bridge.join.options import AttributionOptions
    from bridge.report import Report

ncu = report_option(
    "--ncu",
    multiple=True,
    type=options.FILE,
    help="A report of Nsight Compute (.ncu-rep, or what ncu --csv prints) of the same program."
    " May be repeated.",
    after="--db",
)


def with_ncu(
    report: Report, paths: Sequence[Path], attribution_options: AttributionOptions
) -> Report:
    """Match metrics of Nsight Compute to the kernels of a report, and print on stderr how certain the matches are."""
    if not paths:
        return report
    from bridge.analyze.core import no_timeline
    from bridge.analyze.cost.metrics import matching
    from bridge.report import Report

    if not no_timeline.has_timeline(report.capture):
        raise click.UsageError("--ncu goes with a report that has a timeline, as of nsys")
    metrics = matching.merge_metrics(
        [_matched(report, path, attribution_options) for path in paths]
    )
    capture = replace(report.capture, metrics=metrics)
    return Report(replace(report.attributed, capture=capture))


def _matched(report: Report, path: Path, attribution_options: AttributionOptions) -> Metrics:
    """Read a report of Nsight Compute and match it."""
    from bridge.analyze.core import no_timeline
    from bridge.analyze.cost.metrics import matching
    from bridge.importers.errors import ReportError
    from bridge.report import join

    with doing(f"reading {path}"):
        measured = join(options.read_files([path], True, ()), attribution_options)
    if no_timeline.has_timeline(measured.capture):
        raise ReportError(f"{path.name}: no report of Nsight Compute, which --ncu takes")
    with doing("matching kernels"):
        match = matching.match_metrics(report.attributed, measured.attributed)
    click.echo(f"{path.name}: {match.line}", err=True)
    return match.capture.metrics
