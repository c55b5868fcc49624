"""The option that says how the paths of files tell ranks, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def rank_from(command: F) -> F:
    """How the paths of files tell ranks; a wrong expression is a usage error."""
    return click.option(
        "--rank-from",
        metavar="REGEX",
        callback=_expression,
        help="The rank in the path of a report: group rank, or the first one; the host: group host.",
    )(command)


def _expression(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    from bridge.join.choices import compiled

    try:
        return compiled(text).pattern
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def check(expression: str | None, paths: Sequence[str]) -> None:
    """Refuse an expression that tells nothing of any file."""
    from bridge.join.choices import matches

    if expression is not None and not matches(expression, paths):
        raise click.UsageError(f"--rank-from {expression!r} finds no rank in {', '.join(paths)}")


def identity(known: str, expression: str | None) -> str:
    """Return what a run is known by: with other ranks it is another one."""
    return known if expression is None else f"{known}+rank-from:{expression.encode().hex()}"
