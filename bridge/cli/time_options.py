"""Options that say which time of a report is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from bridge.report import Joined

F = TypeVar("F", bound=Callable[..., Any])

STEPS = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?")


def time(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Read a time in ns."""
    from bridge.analyze.filters import ns_of

    try:
        return None if text is None else ns_of(text)
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
    """Read what matches `STEPS`."""
    first, _, last = text.partition("..")
    return int(first), int(last or first)


def window(command: F) -> F:
    """Which time: gives a command ``first``, ``last`` (ns), ``steps`` and ``name``."""
    options = (
        click.option(
            "--from",
            "first",
            metavar="TIME",
            callback=time,
            help="Only what happens from this time on.",
        ),
        click.option(
            "--to",
            "last",
            metavar="TIME",
            callback=time,
            help="Only what happens before this time.",
        ),
        click.option(
            "--step",
            "steps",
            metavar="N or N..M",
            callback=steps,
            help="Only these steps, and the work they launched.",
        ),
        click.option(
            "--range", "name", metavar="NAME", help="Only while ranges of this name ran (* and ?)."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def within(
    joined: Joined,
    *,
    first: int | None,
    last: int | None,
    steps: tuple[int, int] | None,
    name: str | None,
    **_rest: Any,
) -> Joined:
    """Return what began in the time that the options say; ValueError, in a line, if there is no such time."""
    return joined.within(first_ns=first, last_ns=last, steps=steps, range_name=name)
