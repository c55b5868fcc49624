"""The workers that read reports: how many, within which memory, and the report that they make together."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.analyze.core.table import Table
from bridge.importers.listener import Listener

if TYPE_CHECKING:
    from bridge.importers.remote import Location
    from bridge.scale.aggregates import Aggregates
    from bridge.scale.combined import CombinedReport
    from bridge.scale.requests import PartRequest
    from bridge.scale.task import FailedTask, Work


LOG = logging.getLogger("bridge.scale")
TELLING_S = 5.0  # before that an estimate tells little, and if less is left nobody needs it


@dataclass(frozen=True)
class WorkerOptions:
    """The workers that read reports: a number of processes, or the address of a Dask scheduler.

    ``strict`` stops at the first broken report. ``memory`` is the limit of each worker in bytes, 0
    for none; a process without workers keeps to it by reading in windows.
    """

    workers: int | str | None = None
    strict: bool = False
    memory: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.strict and not self.given:
            raise ValueError("--strict goes with --workers")

    @property
    def given(self) -> bool:
        """Whether workers are requested."""
        return bool(self.workers)

    def larger(
        self, reports: Sequence[Location], tables: Sequence[PartRequest], *, raw: bool = False
    ) -> bool:
        """Tell whether reports need more than --memory-limit: any of them if workers read one each, else all together.

        Reports that workers fetch may. ``raw`` says that ranges are called by their whole texts.
        """
        if not self.memory:
            return False
        paths = [path for path in reports if isinstance(path, Path)]
        if len(paths) < len(reports):
            return True
        from bridge.scale.windows.window import BASE, MANY, memory_needed

        sizes = [memory_needed(path, tables, raw=raw) for path in paths if path.exists()]
        most = max(sizes, default=0) if self.given else sum(sizes)
        needed = BASE + MANY * (len(tables) > 1) + most
        LOG.debug("reports that are read whole need %d of %d bytes", needed, self.memory)
        return needed > self.memory

    def check_output(self, source: Sequence[str], table: Table, form: str) -> None:
        """Raise ReportError if a table is too large to be written within --memory-limit by this process."""
        if self.memory and not self.given:
            from bridge.scale.windows.window import check_output

            check_output(source, self.memory, len(table) * len(table.columns), form)

    def within(self, reports: Sequence[Location]) -> WorkerOptions:
        """Return the workers for an import: this process in windows if the reports need more than --memory-limit."""
        if not self.memory or self.given:
            return self
        from bridge.scale.requests import stored_tables

        return self.alone() if self.larger(reports, stored_tables()) else self

    def alone(self) -> WorkerOptions:
        """Return this process as the only worker, which stops at the first broken report."""
        return replace(self, workers=1, strict=True, quiet=True)

    def run(self, reports: Sequence[Location], work: Work, listener: Listener) -> CombinedReport:
        """Return the report that workers make; the listener hears of warnings, failures and progress.

        Raises ReportError if no report can be read, or one of them where workers are strict.
        """
        from bridge.scale.loading import Workers, run, tasks_of

        count, address = (
            (1, self.workers) if isinstance(self.workers, str) else (self.workers, None)
        )
        pool = Workers(count or 1, address)
        tasks = tasks_of(reports, replace(work, threads=pool.threads, memory=self.memory))
        # A recording that fits no report is an error, as without workers.
        strict = self.strict or bool(work.sidecar)
        report = run(tasks, pool, WorkerProgress(len(tasks), strict, self.quiet, listener))
        listener.warn(report.warnings)
        if left := len(tasks) - len(report.parts):
            listener.say(f"{left} of {len(tasks)} reports left out: they cannot be read")
        return report


class WorkerProgress:
    """Tells a listener the outcome of each report, in the order in which they end."""

    def __init__(self, reports: int, strict: bool, quiet: bool, listener: Listener) -> None:
        self.reports, self.strict, self.quiet = reports, strict, quiet
        self.listener = listener
        self.ended, self.began = 0, time.monotonic()

    def __call__(self, outcome: Aggregates | FailedTask) -> None:
        """Tell an outcome; raise ReportError for a broken report if ``strict``."""
        from bridge.importers.errors import ReportError
        from bridge.render import units
        from bridge.scale.task import FailedTask

        self.ended += 1
        if isinstance(outcome, FailedTask):
            if self.strict:
                raise ReportError(outcome.line)
            self.listener.say(f"broken: {_with_folder(outcome)}")
        elif not self.quiet:
            activities = units.count(outcome.totals["activities"])
            done = f"{self.ended} of {self.reports}{self._left()}"
            self.listener.say(f"{done}: {outcome.source}, {activities} activities")

    def _left(self) -> str:
        """Return how long the other reports will take, if they take as long as those so far; "" if not long."""
        passed = time.monotonic() - self.began
        seconds = passed / self.ended * (self.reports - self.ended)
        if passed < TELLING_S or seconds < TELLING_S:
            return ""
        minutes, seconds = divmod(round(seconds), 60)
        return f", {minutes} min {seconds} s left" if minutes else f", {seconds} s left"


def _with_folder(broken: FailedTask) -> str:
    """Return the message for a broken report with its folder: many files have the same name."""
    if not isinstance(broken.path, Path) or str(broken.path) in broken.line:
        return broken.line
    return f"{broken.path.parent}: {broken.line}"
