"""Many reports in workers: the options, what is said on the way, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import options

if TYPE_CHECKING:
    from bridge.join.choices import Choices
    from bridge.scale.aggregates import Aggregates
    from bridge.scale.combined import Together
    from bridge.scale.loading import Workers
    from bridge.scale.requests import Asked
    from bridge.scale.task import Broken

ROWS_ONLY = {  # options that need the rows of all reports at once
    "first": "--from",
    "last": "--to",
    "steps": "--step",
    "name": "--range",
    "ncu": "--ncu",
    "metrics": "--metrics",
}
F = TypeVar("F", bound=Callable[..., Any])


def workers(command: F) -> F:
    """Where reports are read: gives a command ``workers``, ``scheduler`` and ``strict``."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def _bytes(_context: click.Context, _option: click.Parameter, text: str | None) -> int:
    if text is None:
        return 0
    from bridge.scale.windows.window import amount

    try:
        return amount(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


OPTIONS = (
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Read each report in one of so many processes; only aggregates come back: see docs/fleet.md.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="The same on a Dask cluster, as tcp://host:8786, whose workers see the files by the same path.",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        callback=_bytes,
        help="Take no more memory, as 2GB or 512MiB, each worker, or stop: a larger report goes in windows of"
        " host time, with equal results: see docs/memory-limit.md.",
    ),
    click.option(
        "--strict", is_flag=True, help="With these: stop at a report that cannot be read."
    ),
)


@dataclass(frozen=True)
class Where:
    """Which workers are asked for: none, some processes, or those of a scheduler; and whether a broken report stops all."""

    workers: int | None
    scheduler: str | None
    strict: bool
    quiet: bool = False
    memory: int = 0

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Where:
        """Take what is asked for out of the options of a command."""
        names = ("workers", "scheduler", "strict", "memory")
        return cls(**{name: asked.pop(name) for name in names})

    def __post_init__(self) -> None:
        if self.workers and self.scheduler:
            raise click.UsageError("--workers or --scheduler, not both: a cluster has its own")
        if self.strict and not self.asked:
            raise click.UsageError("--strict goes with --workers or --scheduler")

    @property
    def asked(self) -> bool:
        """Whether any are asked for."""
        return bool(self.workers or self.scheduler)

    def larger(self, reports: Sequence[Path], tables: Sequence[Asked]) -> bool:
        """Whether reports are to be read within some memory, and take more: of workers any of them, else all together."""
        if not self.memory:
            return False
        from bridge.scale.windows.window import BASE, MANY, memory_needed

        sizes = [memory_needed(path, tables) for path in reports if path.is_file()]
        most = max(sizes, default=0) if self.asked else sum(sizes)
        return BASE + MANY * (len(tables) > 1) + most > self.memory

    def within(self, reports: Sequence[Path]) -> Where:
        """Return where all rows of some reports are read: in one worker what takes more memory than asked for."""
        if not self.memory or self.asked:
            return self
        from bridge.scale.requests import kept

        return self.alone() if self.larger(reports, kept()) else self

    def alone(self) -> Where:
        """Return this process as the only worker: the first report that cannot be read stops all."""
        return replace(self, workers=1, strict=True, quiet=True)

    @property
    def _of_fleet(self) -> Workers:
        from bridge.scale.loading import Workers

        return Workers(self.workers or 1, self.scheduler)

    def together(
        self, reports: Sequence[Path], tables: Sequence[Asked], choices: Choices, **more: Any
    ) -> Together:
        """Return the aggregates of reports; what goes wrong with one of them is said, warnings going to stderr."""
        from bridge.join.domains import UnknownDomainError
        from bridge.scale.loading import run, tasks_of

        more |= {"memory": self.memory}
        tasks = tasks_of(reports, tables, choices, self._of_fleet.threads, **more)
        try:
            # A recording that is given and fits no report is an error, as it is of one process.
            strict = self.strict or bool(more.get("sidecar"))
            found = run(tasks, self._of_fleet, Told(len(tasks), strict, self.quiet))
        except UnknownDomainError as error:
            raise click.UsageError(str(error)) from error
        options.warn(found.warnings)
        if left := len(tasks) - len(found.parts):
            click.echo(f"{left} of {len(tasks)} reports left out: they cannot be read", err=True)
        return found


class Told:
    """Says on stderr what has come of each report, in the order in which they end."""

    def __init__(self, reports: int, strict: bool, quiet: bool) -> None:
        self.reports, self.strict, self.quiet = reports, strict, quiet
        self.ended = 0

    def __call__(self, outcome: Aggregates | Broken) -> None:
        """Say it; a broken report is an error where that is asked for."""
        from bridge.render import units
        from bridge.render.table import clean
        from bridge.scale.task import Broken
        from importers.errors import ReportError

        self.ended += 1
        if isinstance(outcome, Broken):
            if self.strict:
                raise ReportError(outcome.line)
            click.echo(f"broken: {clean(_with_folder(outcome))}", err=True)
        elif not self.quiet:
            activities = units.count(outcome.totals["activities"])
            said = f"{self.ended} of {self.reports}: {outcome.source}, {activities} activities"
            click.echo(clean(said), err=True)


def _with_folder(broken: Broken) -> str:
    """Return what is wrong with a report under its whole name: many are called alike."""
    if str(broken.path) in broken.line:
        return broken.line
    return f"{broken.path.parent}: {broken.line}"


def expanded(reports: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files that are meant by names, patterns and folders."""
    if all(path.is_file() for path in reports):  # nothing to load for
        return tuple(reports)
    from bridge.scale.loading import expanded as files

    return tuple(files(reports))


def together(  # noqa: PLR0913, PLR0917 - what a report is asked for
    where: Where,
    by: str,
    reports: Sequence[Path],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    how: dict[str, Any],
    **windows: Any,
) -> Together | None:
    """Return the aggregates that a table is made of: of reports in workers, or of a run of the store that has no rows.

    None where rows are read as ever. Raises ValueError, in a line for the user, for what takes rows.
    """
    if not where.asked and reports and run is None and where.memory:
        return _within(where, by, reports, choices, sidecar, how, windows)
    if not where.asked:
        found = None if reports else _stored(db, run, choices)
        if found is not None:
            _check(found.called, windows)
        return found
    if not reports or run is not None:
        raise click.UsageError("--workers and --scheduler go with reports: name them, and no --run")
    from bridge.analyze.tables.table import Options
    from bridge.scale.requests import asked

    _check("reports apart", windows)
    one = asked(by, Options(**{**how, "columns": _words(how["columns"])}))
    return where.together(reports, [one], choices, sidecar=sidecar)


def _within(  # noqa: PLR0913, PLR0917 - the same
    where: Where,
    by: str,
    reports: Sequence[Path],
    choices: Choices,
    sidecar: tuple[Path, ...],
    how: dict[str, Any],
    windows: dict[str, Any],
) -> Together | None:
    """Return what is made of reports that do not fit into the memory asked for; None if they do."""
    from bridge.analyze.tables.table import Options
    from bridge.scale.requests import Asked
    from bridge.scale.windows.window import checked_request

    if not where.larger(reports, [Asked("op", ())]):
        return None
    _check("reports larger than --memory", windows, "without --memory it works")
    one = checked_request(by, Options(**{**how, "columns": _words(how["columns"])}))
    if not where.larger(reports, [one]):
        return None
    return where.alone().together(reports, [one], choices, sidecar=sidecar)


def _words(columns: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in columns.split(",") if word.strip())


def _check(
    what: str, windows: dict[str, Any], else_: str = "give the reports, without --workers"
) -> None:
    """Refuse what needs the rows of all reports at once."""
    for name, option in ROWS_ONLY.items():
        if windows.get(name):
            raise ValueError(f"{option} needs the rows of {what}: {else_}")


def _stored(db: Path, run: int | str | None, choices: Choices) -> Together | None:
    """Return a run of aggregates, None where the run of that number or name has rows."""
    from bridge import store
    from bridge.join.choices import Choices

    found = store.load_aggregates(db, run)
    if found is not None and choices != Choices():
        raise ValueError(
            f"{found.called}: its reports were joined as they are, in no other way; give the reports themselves"
        )
    return found
