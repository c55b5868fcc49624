"""The option ``--ncu``: metrics of Nsight Compute for a report with a timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bridge.cli import options

F = TypeVar("F", bound=Callable[..., Any])


def ncu(command: F) -> F:
    """Add the option ``--ncu`` to a command."""
    return click.option(
        "--ncu",
        multiple=True,
        type=options.FILE,
        help="A report of Nsight Compute (.ncu-rep, or what ncu --csv prints) of the same program."
        " May be repeated.",
    )(command)
