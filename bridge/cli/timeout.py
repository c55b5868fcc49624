"""The option ``--timeout``: a limit on the time that a command takes.

A command that takes too long stops with a line that tells what it was doing. Outputs are written
whole or not at all, so nothing half-written stays.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import click

from bridge.cli.help import report_option
from bridge.knowledge.package import UserError

F = TypeVar("F", bound=Callable[..., Any])

NS = 1e9
REMEDY = "read a part of it (--from, --to, --step, --only), or give more time"


_stages: list[str] = []  # what the command is doing, the innermost last


@contextmanager
def stage(what: str) -> Iterator[Callable[[str], None]]:
    """Note what a block does, as "reading report.sqlite", for the line of a command that is stopped.

    Gives a function that notes what the block does now.
    """
    place = len(_stages)
    _stages.append(what)
    try:
        yield lambda now: _stages.__setitem__(place, now)
    finally:
        _stages.pop()


def running_stage() -> str:
    """Return what the command is doing; '' if it has not said."""
    return _stages[-1] if _stages else ""


def timeout_option(command: F) -> F:
    """Add the option ``--timeout`` to a command that reads reports."""

    @functools.wraps(command)
    def limited(*args: Any, timeout: tuple[str, float] | None, **values: Any) -> Any:
        with _limit(*timeout) if timeout else nullcontext():
            return command(*args, **values)

    result: F = report_option(
        "--timeout",
        metavar="TIME",
        callback=_seconds,
        help="Stop after this time, as 60s, and write nothing.",
        after="--sidecar",
        rare=True,
    )(limited)  # type: ignore[assignment]
    return result


def _seconds(
    context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[str, float] | None:
    """Read a time; return its text and its seconds."""
    if text is None or context.resilient_parsing:
        return None
    from bridge.knowledge.amounts import parse_time_ns

    try:
        seconds = parse_time_ns(text) / NS
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if seconds <= 0:
        raise click.BadParameter(f"{text}: give a time above 0")
    return text, seconds


@contextmanager
def _limit(text: str, seconds: float) -> Iterator[None]:
    """Raise UserError in a block that takes longer."""

    def stop(_number: int, _frame: object) -> None:
        doing = running_stage()
        during = f" while {doing}" if doing else ""
        raise UserError(f"stopped after {text} (--timeout){during}; nothing was written: {REMEDY}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
