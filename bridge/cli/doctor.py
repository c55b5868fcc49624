"""``bridge doctor``: checks this machine, or whether a report can be read and trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.lookup import QUALITY_DETAILS
from bridge.cli import options, outputs
from bridge.cli.help import Command
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.analyze.checks.quality import Quality
    from bridge.capture.doctor import Finding, Machine
    from bridge.report import Report
    from bridge.source import ReportInput

FORMATS = ("text", "json", "md")
COLORS = {"ok": "green", "note": "yellow", "lost": "red"}


@click.command(
    cls=Command,
    examples=(
        "bridge doctor",
        "bridge doctor report.sqlite",
        "bridge doctor --run 1 --format md",
    ),
)
@options.report_input
@outputs.output(FORMATS)
def doctor(source: ReportInput, output: Output) -> None:
    """Check what is installed on this machine; with REPORTS or --run, how far a capture can be trusted.

    Without a report: profile a decorated function, and name the known problems of this machine. The
    exit status is 1 if annotations would be lost.

    With a report: check that this machine can read it, and print a score from 100 down to 0. Each
    reason has its cost, what was found, and what to do for the next capture. Reasons that do not
    apply to a kind of report are left out. Where nothing ran on a GPU there is no score, but what the
    profiler and the program say of it.
    """
    output.check(source.reports)
    if source.reports or source.run is not None:
        _check_capture(source, output)
    else:
        _check_machine(output)


# -- A capture


def _check_capture(source: ReportInput, output: Output) -> None:
    """Print whether reports can be read, and the quality of the capture."""
    from bridge.importers.errors import ExportFailed, ReportError

    try:
        report = options.load(source, QUALITY_DETAILS)
    except ExportFailed as error:
        raise ReportError(f"{error}; {_remedy()}") from error
    result = report.quality
    text = _quality_text(result, output.format, to_terminal=output.to_terminal)
    if output.format == FORMATS[0] and source.reports:
        text = f"{_readable(report)}\n{text}"
    output.write(text, "not rated" if result.score is None else f"{result.score} of 100")


def _remedy() -> str:
    """Return what to do about a report that the installed nsys cannot export."""
    from bridge.capture.doctor import inspect_machine

    nsys = inspect_machine().nsys
    return f"export it where it was recorded, or take a newer nsys (here: {nsys.version if nsys else 'none'})"


def _readable(report: Report) -> str:
    """Return a line per report that was read."""
    from bridge.capture.doctor import FINE, Finding

    lines = []
    for name, facts in zip(report.capture.source, report.capture.facts, strict=True):
        made = facts.product or facts.schema or "an unknown version"
        made = f"Nsight Systems {made}" if made[:1].isdigit() else made
        lines.append(_line(Finding(FINE, f"{name}: readable, recorded by {made}", "")))
    return "".join(f"{line}\n" for line in lines)


def _quality_text(result: Quality, form: str, *, to_terminal: bool) -> str:
    from bridge.render import quality

    if form == "json":
        return quality.as_json(result)
    if form == "md":
        return quality.as_markdown(result)
    return quality.for_terminal(result, options.look(to_terminal=to_terminal))


# -- This machine


def _check_machine(output: Output) -> None:
    """Print what is installed, and what would go wrong; end with status 1 if annotations would be lost."""
    from bridge.capture import doctor as traps
    from bridge.capture.cupti.self_test import run_cupti_test

    if output.format == "md":
        raise click.UsageError("--format md goes with a report: name one, or --run N")
    here = replace(traps.inspect_machine(), cupti=run_cupti_test())
    test = None if here.nsys is None else traps.run_self_test(here.nsys)
    values = list(traps.findings(here, test))
    text = _json(here, values) if output.format == "json" else _text(here, values)
    output.write(f"{text}\n", "checked")
    if any(finding.kind == traps.LOST for finding in values):
        click.get_current_context().exit(1)


def _installed(here: Machine) -> dict[str, str]:
    programs = {"nsys": here.nsys, "ncu": here.ncu}
    result = {name: f"{p.version} {p.path}".strip() if p else "" for name, p in programs.items()}
    return {"python": here.python, **result, "driver": here.driver, **here.packages}


def _text(here: Machine, result: Iterable[Finding]) -> str:
    lines = [f"{name:14} {text or 'not found'}" for name, text in _installed(here).items()]
    lines.append("")
    for finding in result:
        lines.append(_line(finding))
        if finding.remedy:
            lines.append(f"      {finding.remedy}")
    return "\n".join(lines)


def _line(finding: Finding) -> str:
    return f"{click.style(f'{finding.kind:4}', fg=COLORS[finding.kind])}  {finding.what}"


def _json(here: Machine, result: Iterable[Finding]) -> str:
    document = {
        "format": "bridge.doctor/1",
        "installed": _installed(here),
        "findings": [finding._asdict() for finding in result],
    }
    return json.dumps(document, indent=1, ensure_ascii=False)
