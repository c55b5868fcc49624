"""Options of the workers that read many reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import options
from bridge.cli.help import option
from bridge.cli.options import usage_errors

if TYPE_CHECKING:
    from bridge.importers.remote import Location
    from bridge.scale.workers import WorkerOptions

F = TypeVar("F", bound=Callable[..., Any])


def _bytes(context: click.Context, _option: click.Parameter, text: str | None) -> int:
    if text is None or context.resilient_parsing:
        return 0
    from bridge.knowledge.amounts import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class WorkerPool(click.ParamType):  # type: ignore[type-arg] # generic in new versions of click only
    """A number of processes, or the address of a Dask scheduler."""

    name = "N|ADDRESS"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click 8.1 passes no context
        """Return the placeholder in the help."""
        return self.name

    def convert(
        self, value: Any, _option: click.Parameter | None, _context: click.Context | None
    ) -> int | str:
        """Return the number, or the address. Raises `click.BadParameter` for other text."""
        text = str(value)
        if "://" in text:
            return text
        if not text.isdecimal() or not int(text):
            self.fail(f"{text!r}: write a number of processes from 1 on, or tcp://host:port")
        return int(text)


worker_option = partial(option, section="Workers", rare=True)
OPTIONS = (
    worker_option(
        "--workers",
        type=WorkerPool(),
        help="Read each report in one of N processes, or on the Dask cluster at ADDRESS (tcp://host:8786);"
        " only aggregates come back: see docs/fleet.md.",
    ),
    worker_option(
        "--memory-limit",
        "memory",
        metavar="SIZE",
        callback=_bytes,
        help="Limit the memory of each worker, as 2GB or 512MiB: larger reports are read in windows of time,"
        " with equal results: see docs/memory-limit.md.",
    ),
    worker_option(
        "--strict", is_flag=True, help="With --workers: stop at a report that cannot be read."
    ),
)


def _workers(**given: Any) -> WorkerOptions:
    from bridge.scale.workers import WorkerOptions

    with usage_errors():
        return WorkerOptions(**given)


def workers(command: F) -> F:
    """Give a command the options of workers as one parameter ``workers``."""
    return options.collected("workers", _workers, *OPTIONS)(command)


def expand_reports(reports: Sequence[Location], workers: WorkerOptions) -> tuple[Location, ...]:
    """Return the files of names, patterns and folders; those at URLs are fetched unless workers do it."""
    if all(isinstance(path, Path) and path.is_file() for path in reports):  # nothing to load
        return tuple(reports)
    from bridge.scale.loading import expand_paths as files

    expanded = files(reports)
    return tuple(expanded) if workers.given else options.local_reports(expanded)
