"""``bridge diff``: two reports compared, and gates that a build fails at."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.analyze.tables.views import DIMENSIONS, TIME_UNITS
from bridge.cli import options, outputs, time_options

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.compare.gates import Budget
    from bridge.comparison import Diff
    from bridge.join.choices import Choices
    from bridge.render.diff import Shown
    from bridge.report import Joined


# -- What stands on either side of a diff: report files, or a run of the store


@dataclass(frozen=True)
class Side:
    """Some report files, or without any a run of the store, by number or name."""

    reports: tuple[Path, ...] = ()
    run: int | str | None = None

    @classmethod
    def of(cls, text: str, db: Path) -> Side:
        """Read an argument: an existing file first, then a run; what looks like a file is one, there or not."""
        paths = tuple(Path(part) for part in text.split(","))
        if Path(text).exists():
            return cls((Path(text),))
        if len(paths) > 1 or paths[0].suffix or len(paths[0].parts) > 1 or not db.exists():
            return cls(paths)
        return cls(run=options.run_of(text))

    def loaded(
        self, db: Path, choices: Choices, *, by: str, kernel_names: str, **asked: Any
    ) -> Joined:
        """Load it, and of it the time that is asked for; ValueError, in a line, if there is no such time."""
        details = {name for part in by.split(",") for name in DIMENSIONS.get(part.strip(), ())}
        details |= {"mangled"} & {kernel_names}
        joined = options.joined(self.reports, db, self.run, choices, details)
        return time_options.within(joined, **asked)

    def before(self, joined: Joined, db: Path) -> Side:
        """Return the newest run of the store that is none of this report, and say which."""
        from bridge import store

        recordings = [path for facts in joined.report.facts for path in facts.recordings]
        own = store.identity((*self.reports, *recordings)) if self.reports else ""
        run = store.described(db, self.run).id if not self.reports else None
        others = [
            r for r in store.listed(db) if store.without_ncu(r.identity) != own and r.id != run
        ]
        if not others:
            raise store.StoreError(f"{db}: no run of another report to compare with; name BEFORE")
        found = others[-1]
        name = f" ({found.name})" if found.name else ""
        click.echo(f"before: run {found.id}{name} of {db}, {', '.join(found.source)}", err=True)
        return Side(run=found.id)


def read_budget(path: Path) -> Budget:
    """Read a budget from a file of TOML.

    Raises ValueError, in a line for the user, for what is no budget, and OSError for what cannot be opened.
    """
    from bridge.analyze.compare.gates import Budget

    try:
        return Budget.parsed(tomllib.loads(path.read_text(encoding="utf-8")))
    except RecursionError as error:
        raise ValueError("nested too deeply for a budget") from error


FAILED = 3  # exit status
FORMATS = ("table", "json", "csv", "md", "junit")
SUFFIXES = {"xml": "junit"}


@click.command()
@click.argument("reports", nargs=-1, required=True, metavar="[BEFORE] AFTER")
@options.store
@click.option(
    "--by",
    default="op",
    show_default=True,
    metavar="TABLE",
    help="What a row is: op, op-kernel, kernel, kind, path, module, shape … or several with commas.",
)
@click.option(
    "--fail-over",
    multiple=True,
    metavar="LIMIT",
    help="Exit with 3 if the activity time grew by more: 5%, 2ms; op:5%: that of any op above 1 % of all."
    " May be repeated.",
)
@click.option(
    "--budget",
    type=options.FILE,
    help="Exit with 3 if AFTER exceeds the limits of this file (TOML).",
)
@click.option(
    "--noise",
    metavar="SHARE",
    default="1%",
    show_default=True,
    help="A change up to this is none.",
)
@click.option(
    "--kernel-names",
    type=click.Choice(("short", "demangled", "mangled")),
    default="short",
    show_default=True,
    help="How kernels are named.",
)
@time_options.window
@click.option("--sort", metavar="[+]COLUMN", help="Sort by this column, + for smallest first.")
@click.option("--top", type=click.IntRange(min=1), help="Show only this many rows.")
@click.option(
    "--filter", "conditions", help="Only rows like 'op=aten::*, diff>10us, state=slower'."
)
@click.option(
    "--unit",
    type=click.Choice(TIME_UNITS),
    help="Unit of all times in tables. [default: what fits]",
)
@options.choices
@outputs.formats(FORMATS)
@outputs.option
@click.pass_context
def diff(  # noqa: PLR0913, PLR0917 - what every command takes
    context: click.Context,
    /,
    reports: tuple[str, ...],
    db: Path,
    choices: Choices,
    fail_over: tuple[str, ...],
    budget: Path | None,
    output: Path | None,
    force: bool,
    **asked: Any,
) -> None:
    """Compare report AFTER with BEFORE, row by row, and fail where it got worse than allowed.

    Each is a report file (several with commas), or a run of the store: its number, or its name. With AFTER alone,
    BEFORE is the newest other run of the store; with AFTER and a --budget alone, nothing is compared.
    """
    if len(reports) > 2:  # noqa: PLR2004 (a diff has two sides)
        raise click.UsageError("two reports are compared; several of one run go with commas: a,b")
    named = [Side.of(text, db) for text in reports]
    limits = _budget(budget)
    _gates(fail_over)
    form = outputs.form_of(asked["form"], output, FORMATS, SUFFIXES)
    if form == "junit" and not (fail_over or limits):
        raise click.UsageError("--format junit says what gates found: add --fail-over or --budget")
    outputs.check(output, [path for side in named for path in side.reports], force=force)
    with _in_a_line():
        sides = [side.loaded(db, choices, **asked) for side in named]
        if len(named) == 1 and (fail_over or not limits):
            sides.insert(0, named[0].before(sides[0], db).loaded(db, choices, **asked))
        shown = _shown(sides, fail_over, limits, **asked)
    from bridge.render.table import clean

    _write(shown, form, output, force=force, unit=asked["unit"])
    failed = [verdict for verdict in shown.verdicts if not verdict.passed]
    for verdict in failed:
        click.echo(f"failed: {clean(verdict.line)}", err=True)
    if failed:
        context.exit(FAILED)


@contextmanager
def _in_a_line() -> Iterator[None]:
    """Say what is wrong with a request as click does."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _budget(path: Path | None) -> Budget | None:
    if path is None:
        return None

    try:
        return read_budget(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.BadParameter(f"{path}: {reason}", param_hint="--budget") from error


def _gates(texts: Sequence[str]) -> None:
    """Refuse what is no gate before any report is read."""
    from bridge.analyze.compare.gates import Growth

    try:
        for text in texts:
            Growth.parsed(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--fail-over") from error


def _shown(
    sides: list[Joined], fail_over: Sequence[str], limits: Budget | None, **asked: Any
) -> Shown:
    """Compare, judge, and choose the rows to show."""
    import pandas as pd

    from bridge.analyze.compare.steps import same_steps
    from bridge.comparison import Diff, within
    from bridge.render.diff import Shown

    if len(sides) == 1 and limits is not None:
        source = sides[0].report.source
        return Shown((), source, None, pd.DataFrame(), within(sides[0], limits))
    before, after = sides
    if asked["steps"]:
        same_steps(before.attributed, after.attributed, *asked["steps"])
    found = Diff(before, after, asked["by"], asked["kernel_names"], _share(asked["noise"]))
    verdicts = found.judged(fail_over, limits)
    rows = _chosen(found, **asked)
    return Shown(before.report.source, after.report.source, found.comparison, rows, verdicts)


def _chosen(
    found: Diff, *, conditions: str | None, sort: str | None, top: int | None, **_rest: Any
) -> pd.DataFrame:
    from bridge.analyze.compare.steps import of_known
    from bridge.analyze.filters import column_named
    from bridge.analyze.tables.table import ordered

    rows = of_known(found.rows, conditions) if conditions is not None else found.rows
    if sort:
        column = column_named(rows, sort.removeprefix("+"))
        rows = ordered(rows, [column], ascending=sort.startswith("+"))
    return rows.head(top) if top else rows


def _share(text: str) -> float:
    from bridge.analyze.compare.gates import amount

    number, unit = amount(text)
    if unit != "%":
        raise ValueError(f"--noise {text}: write it as 1%")
    return float(number) / 100


def _write(shown: Shown, form: str, output: Path | None, *, force: bool, unit: str | None) -> None:
    """Write what was found; what failed is said on standard error besides, and in no table on a terminal twice."""
    from bridge.render import diff as texts
    from bridge.render.ci_reports import as_junit

    if form == "json":
        text = texts.as_json(shown)
    elif form == "csv":
        text = texts.as_csv(shown)
    elif form == "junit":
        text = as_junit(shown.verdicts)
    elif form == "md":
        text = texts.as_markdown(_of_time(shown), unit)
    else:
        look = replace(options.look(to_terminal=output is None), unit=unit)
        said = shown.verdicts if output else [v for v in shown.verdicts if v.passed]
        text = texts.for_terminal(replace(_of_time(shown), verdicts=said), look)
    outputs.give(text, output, f"{len(shown.rows)} rows, {len(shown.verdicts)} judged", force=force)


def _of_time(shown: Shown) -> Shown:
    """Leave out what takes no time on either side, and what nobody reads on."""
    from bridge.cli.terminal import READABLE

    if shown.comparison is None:
        return shown
    rows = shown.rows[(shown.rows["before_ns"] != 0) | (shown.rows["after_ns"] != 0)]
    return replace(
        shown, rows=rows.head(READABLE), left_out=len(shown.rows) - len(rows.head(READABLE))
    )
