"""What Nsight Compute measured, beside a report that has a timeline: the option ``--ncu``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import options
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.join.choices import Choices
    from bridge.report import Joined
    from importers.ncu.metrics import Metrics

F = TypeVar("F", bound=Callable[..., Any])


def ncu(command: F) -> F:
    """What Nsight Compute measured of the program that a report is of."""
    return click.option(
        "--ncu",
        multiple=True,
        type=options.FILE,
        help="A report of Nsight Compute (.ncu-rep, or what ncu --csv prints) of the same program."
        " May be repeated.",
    )(command)


def with_ncu(found: Joined, paths: Sequence[Path], choices: Choices) -> Joined:
    """Match what Nsight Compute measured to the kernels of a report, and say on stderr how well that went."""
    if not paths:
        return found
    from bridge.analyze.metrics import matching, no_timeline
    from bridge.report import Joined

    if not no_timeline.has_timeline(found.report):
        raise click.UsageError("--ncu goes with a report that has a timeline, as of nsys")
    metrics = matching.united([_matched(found, path, choices) for path in paths])
    report = replace(found.report, metrics=metrics)
    return Joined(replace(found.attributed, report=report))


def _matched(found: Joined, path: Path, choices: Choices) -> Metrics:
    """Read a report of Nsight Compute and match it."""
    from bridge.analyze.metrics import matching, no_timeline
    from bridge.report import join
    from importers.errors import ReportError

    with doing(f"reading {path}"):
        measured = join(options.imported([path], True, ()), choices)
    if no_timeline.has_timeline(measured.report):
        raise ReportError(f"{path.name}: no report of Nsight Compute, which --ncu takes")
    with doing("matching kernels"):
        match = matching.matched(found.attributed, measured.attributed)
    click.echo(f"{path.name}: {match.line}", err=True)
    return match.report.metrics
