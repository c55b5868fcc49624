"""``--timeout``: a command that takes too long stops, with a line that tells what it was doing.

Outputs are written whole or not at all, so nothing half-written stays.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, TypeVar

import click

from bridge.cli.options import running_stage
from bridge.package import UserError

F = TypeVar("F", bound=Callable[..., Any])
NS = 1e9
REMEDY = "read a part of it (--from, --to, --step, --only), or give more time"


def timeout_option(command: F) -> F:
    """Add the option ``--timeout`` to a command that reads reports."""
    return click.option(
        "--timeout",
        metavar="TIME",
        expose_value=False,
        callback=_limit,
        help="Stop after this time, as 60s, and write nothing.",
    )(command)


def _limit(context: click.Context, _option: click.Parameter, text: str | None) -> None:
    """Start the clock of the command; it stops with the command."""
    if text is None or context.resilient_parsing:
        return
    from bridge.analyze.filters import parse_time_ns

    try:
        seconds = parse_time_ns(text) / NS
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if seconds <= 0:
        raise click.BadParameter(f"{text}: give a time above 0")

    def stop(_number: int, _frame: object) -> None:
        stage = running_stage()
        during = f" while {stage}" if stage else ""
        raise UserError(f"stopped after {text} (--timeout){during}; nothing was written: {REMEDY}")

    before = signal.signal(signal.SIGALRM, stop)

    def release() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    context.call_on_close(release)
    signal.setitimer(signal.ITIMER_REAL, seconds)
