"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import rank_options
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.join.choices import Choices, Rule
    from bridge.knowledge.kernels import Rules
    from bridge.render.table import Look
    from bridge.report import Joined
    from importers import Report
    from importers.nsys.table import Details

F = TypeVar("F", bound=Callable[..., Any])

rank_from = rank_options.rank_from
FILE = click.Path(path_type=Path)
FILE_WIDTH = 160
SHOWN = {
    "html": "page",
    "view": "trace to view",
    "memory": "allocations",
    "why": "explanation",
}  # by commands


def store(command: F) -> F:
    """Which store."""
    return click.option(
        "--db",
        type=FILE,
        envvar="BRIDGE_DB",
        default=Path("bridge.db"),
        show_default=True,
        show_envvar=True,
        help="The store of imported runs.",
    )(command)


def source(command: F) -> F:
    """Where a command reads from: report files, or a run of the store."""
    command = click.option(
        "--run",
        metavar="RUN",
        callback=run_asked,
        help="Run of the store to read, by number or name; default: the newest.",
    )(store(command))
    return click.argument("reports", nargs=-1, type=FILE)(command)


def run_asked(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> int | str | None:
    """Read which run is asked for, None for the newest."""
    return None if text is None else run_of(text)


def run_of(text: str) -> int | str:
    """Read the number of a run, or its name."""
    return int(text) if text.isdecimal() else text


def sidecar(command: F) -> F:
    """Where the details of calls are."""
    return click.option(
        "--sidecar",
        multiple=True,
        type=FILE,
        help="A recording of the profiled program, or a folder of them. May be repeated."
        " [default: those beside the report and in $BRIDGE_SIDECAR]",
    )(command)


def rules_option(command: F) -> F:
    """Regroup op names by the user's own rules."""
    return click.option(
        "--rules",
        type=FILE,
        help="A TOML file that regroups ops: [[rule]] tables with match (a regular expression) and op.",
    )(command)


def names(_context: click.Context, _option: click.Parameter, text: str) -> list[str]:
    """Read names with commas between them, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def choices(command: F) -> F:
    """How activities are attributed: options that the command gets as one parameter ``choices``."""

    @functools.wraps(command)
    def with_choices(*args: Any, **given: Any) -> Any:
        from bridge.join.choices import Choices

        chosen = {name: given.pop(name) for name in ("graphs", "domains", "without", "adopt")}
        chosen["kernel_rules"] = read_kernel_rules(given.pop("kernel_rules"))
        return command(*args, choices=Choices(read_rules(given.pop("rules")), **chosen), **given)

    taking: Any = with_choices
    for option in (*reversed(CHOICES), rules_option):
        taking = option(taking)
    found: F = taking
    return found


CHOICES = (
    click.option(
        "--graphs",
        type=click.Choice(("capture", "launch")),
        help="Work of a CUDA graph belongs to the op it was captured in, or that launched the graph."
        " [default: capture where known, but launch for raw texts]",
    ),
    click.option(
        "--domain",
        "domains",
        multiple=True,
        help="Only ranges of this NVTX domain are ops: its name, default, or all. May be repeated."
        " [default: all but libraries' own]",
    ),
    click.option(
        "--exclude-domain", "without", multiple=True, help="Ranges of this domain are no ops."
    ),
    click.option(
        "--adopt",
        is_flag=True,
        help="Give work of threads without ranges to the op that another thread waits in: a guess.",
    ),
    click.option(
        "--kernel-rules",
        type=FILE,
        envvar="BRIDGE_KERNEL_RULES",
        show_envvar=True,
        help="A TOML file that says what kernels are, before the built-in rules: see docs/kernels.md.",
    ),
)


def joined(
    reports: Sequence[Path],
    db: Path,
    run: int | str | None,
    choices: Choices,
    details: Details = True,
    sidecar: Sequence[Path] = (),
) -> Joined:
    """Load what the options name, warnings going to stderr."""
    from bridge.join.domains import UnknownDomainError
    from bridge.report import join

    if reports and run is not None:
        raise click.UsageError("--run reads the store: name no report beside it")
    if sidecar and not reports:
        raise click.UsageError("--sidecar goes with a report: name the report beside it")
    if reports:
        rank_options.check(choices.rank_from, list(map(str, reports)))
        report = imported(reports, details, sidecar)
    else:
        report, kept = _stored(db, run, details)
        rank_options.check(choices.rank_from, report.source)
        choices = replace(choices, rules=choices.rules or kept)
    try:
        with doing("joining"):
            found = join(report, choices)
    except UnknownDomainError as error:
        raise click.UsageError(str(error)) from error
    warn((*report.warnings, *found.warnings))
    _with_timeline(report)
    return found


def warn(lines: Iterable[str]) -> None:
    """Say on stderr what the user should know, a line each."""
    from bridge.render.table import clean

    for line in lines:
        click.echo(f"warning: {clean(line)}", err=True)


def _with_timeline(report: Report) -> None:
    """Refuse a command that shows times of a report that has no timeline."""
    from bridge.analyze.metrics import no_timeline

    command = click.get_current_context().command.name or ""
    no_timeline.refuse(report, SHOWN.get(command, command), fits=command in no_timeline.COMMANDS)


def imported(reports: Sequence[Path], details: Details, sidecar: Sequence[Path]) -> Report:
    """Read report files."""
    import importers
    from bridge.scale import heap

    heap.keep_for(reports)
    what = str(reports[0]) if len(reports) == 1 else f"{len(reports)} reports"
    with doing(f"reading {what}"):
        return importers.load(*reports, details=details, sidecar=sidecar)


def _stored(db: Path, run: int | str | None, details: Details) -> tuple[Report, tuple[Rule, ...]]:
    """Read a run, and the rules that it was imported with."""
    from bridge import store  # sqlite-utils takes a while, and a report needs none of it
    from bridge.join import choices as labels
    from importers.nsys.table import asked

    kept = store.described(db, run)
    with doing(f"reading run {kept.id} of {db}"):
        report = store.load(db, kept.id, metrics=asked(details, "metrics"))
    return report, labels.rules(kept.rules) if kept.rules else ()


def read_rules(path: Path | None) -> tuple[Rule, ...]:
    """Read a file of rules; a bad one is a usage error."""
    from bridge.join import choices as labels

    if path is None:
        return ()
    try:
        return labels.rules(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.BadParameter(f"{path}: {reason}", param_hint="--rules") from error


def read_kernel_rules(path: Path | None) -> Rules | None:
    """Read a file of rules of kernels; a bad one is a usage error."""
    from bridge.knowledge import kernels

    if path is None:
        return None
    try:
        return kernels.rules(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.BadParameter(f"{path}: {reason}", param_hint="--kernel-rules") from error


def look(*, to_terminal: bool = True) -> Look:
    """Return how tables are shown: with bars and colours in a terminal, plain in a pipe or a file.

    $NO_COLOR takes the colours away, $FORCE_COLOR gives them to a pipe too.
    """
    import sys

    from bridge.render.table import Look

    shown = to_terminal and sys.stdout.isatty()
    forced = to_terminal and os.environ.get("FORCE_COLOR", "") not in ("", "0")
    color = (shown or forced) and not os.environ.get("NO_COLOR")
    return Look(terminal_width() if to_terminal else FILE_WIDTH, shown or forced, color)


def terminal_width() -> int:
    """Return the terminal's width, 80 where there is none; $COLUMNS overrides."""
    import shutil

    return max(60, shutil.get_terminal_size((int(os.environ.get("COLUMNS") or 80), 24)).columns)
