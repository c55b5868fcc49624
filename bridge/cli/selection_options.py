"""Options that select a part of the time of a report, and rows of a table."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.analyze.core.catalog.lookup import TIME_UNITS
from bridge.cli import completion
from bridge.cli.help import option, output_option, row_option
from bridge.cli.options import TERMINAL_ROWS, collected, usage_errors

if TYPE_CHECKING:
    from bridge.analyze.core.filters import Condition
    from bridge.analyze.core.table import Table
    from bridge.source import TimeRange


F = TypeVar("F", bound=Callable[..., Any])

LIST = "list"  # as a name: all names that there are
time_option = partial(option, section="Time")
STEPS = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?")


def time(context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Read a time in ns."""
    if text is None or context.resilient_parsing:  # completion: loading filters takes a second
        return None
    from bridge.knowledge.amounts import parse_time_ns

    try:
        return parse_time_ns(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def steps(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    """Read the first and the last step."""
    if text is None:
        return None
    if not STEPS.fullmatch(text):
        raise click.BadParameter(f"{text!r}: write a step, as 3, or several, as 3..5")
    return first_and_last(text)


def first_and_last(text: str) -> tuple[int, int]:
    """Read a text that matches `STEPS`."""
    first, _, last = text.partition("..")
    return int(first), int(last or first)


def _time_range(**given: Any) -> TimeRange:
    from bridge.source import TimeRange

    return TimeRange(**given)


def time_range(command: F) -> F:
    """Give a command the options of time as one parameter ``time_range``."""
    return collected(
        "time_range",
        _time_range,
        time_option(
            "--from",
            "first",
            metavar="TIME",
            callback=time,
            help="Only what begins at this time or later, as 1.5s.",
        ),
        time_option(
            "--to", "last", metavar="TIME", callback=time, help="Only what begins before this time."
        ),
        time_option(
            "--step",
            "steps",
            metavar="N or N..M",
            callback=steps,
            help="Only these steps, and the work they launched.",
        ),
        time_option(
            "--range", "name", metavar="NAME", help="Only while ranges of this name ran (* and ?)."
        ),
    )(command)


# -- Rows of a table


ALL = sys.maxsize  # as a number of rows: all


class RowCount(click.ParamType):  # type: ignore[type-arg] # generic in new versions of click only
    """A number of rows, or ``all``."""

    name = "N|all"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click 8.1 passes no context
        """Return the placeholder in the help."""
        return self.name

    def convert(
        self, value: Any, _option: click.Parameter | None, _context: click.Context | None
    ) -> int:
        """Return the number of rows. Raises `click.BadParameter` for other text."""
        if value == "all":
            return ALL
        if not str(value).isdecimal() or not 0 < int(value) <= ALL:
            self.fail(f"{value!r}: write a number of rows from 1 on, or all")
        return int(value)


top = row_option(
    "--top",
    type=RowCount(),
    help=f"Show only the first N rows; all shows all. [default: {TERMINAL_ROWS} on a terminal]",
)


@dataclass(frozen=True)
class RowOptions:
    """Conditions on rows, the column to sort by (``+``: smallest first), the number of rows, and a unit.

    ``top`` is None if no number was given. Commands that see the column `LIST` print all columns.
    """

    conditions: tuple[Condition, ...]
    sort: str
    top: int | None
    unit: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of conditions and sorting, as the user wrote them."""
        names = [condition.column for condition in self.conditions]
        return (*names, *([self.sort.removeprefix("+")] if self.sort else []))

    def without_steps(self) -> tuple[RowOptions, tuple[int, int] | None]:
        """Return the options without the condition on steps, and its first and last step (None without one).

        Raises ValueError with a message for the user for a condition that is neither a step nor a
        range of steps.
        """
        steps = [c for c in self.conditions if c.column.lower() == "step"]
        if not steps:
            return self, None
        step = steps[0]
        if len(steps) > 1 or step.comparison != "=" or not STEPS.fullmatch(step.value):
            raise ValueError("steps are chosen as step=3 or step=3..5")
        rest = tuple(c for c in self.conditions if c not in steps)
        return replace(self, conditions=rest), first_and_last(step.value)

    def sorted_and_cut(self, table: Table) -> Table:
        """Return a table sorted and cut as requested. Raises ValueError for an unknown column."""
        if self.sort not in ("", LIST):
            from bridge.analyze.core.filters import SORT_LIST, column_of
            from bridge.analyze.tables.build import ordered

            column = column_of(table, self.sort.removeprefix("+"), SORT_LIST)
            table = ordered(table, [column], ascending=self.sort.startswith("+"))
        return table.head(self.top) if self.top else table


def rows(example: str) -> Callable[[F], F]:
    """Give a command the options of rows as one parameter ``rows``; ``example`` shows conditions in the help."""
    return collected(
        "rows",
        _row_options,
        row_option(
            "--sort",
            metavar="[+]COLUMN",
            shell_complete=completion.sort,
            help="Sort by this column, + for smallest first; list shows all.",
        ),
        top,
        row_option(
            "--filter",
            "conditions",
            metavar="CONDITIONS",
            help=f"Only rows like '{example}'; list shows all columns.",
        ),
        output_option(
            "--unit",
            type=click.Choice(TIME_UNITS),
            help="Unit of all times in tables. [default: what fits]",
            after="--force",
        ),
    )


def _row_options(
    *, sort: str | None, top: int | None, conditions: str | None, unit: str | None
) -> RowOptions:
    parsed: tuple[Condition, ...] = ()
    if conditions == LIST:
        return RowOptions((), LIST, top, unit)
    if conditions is not None:
        from bridge.analyze.core.filters import parse_conditions

        with usage_errors():
            parsed = tuple(parse_conditions(conditions))
    return RowOptions(parsed, sort or "", top, unit)
