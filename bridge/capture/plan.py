"""One launch of a program under a profiler, from what the user asked to the reports that came out.

The invariant: everything that can be refused is refused before the program starts. Afterwards the
program's own exit status counts, and a report that came out is kept whatever it was.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.annotate.recording.sidecar import FOLDER
from bridge.capture import launch, ncu, nsys, program, reports, tool
from bridge.capture.errors import FAILED, NOT_EXECUTABLE, CaptureError
from bridge.capture.request import Line, Request, line
from bridge.capture.schedule_text import VARIABLE
from bridge.capture.session.capture import NVTX

KINDS = {"nsys": nsys, "ncu": ncu}
CAPTURE = "BRIDGE_CAPTURE"
CLOCK_SLACK_NS = 2_000_000_000  # that the clock of a file system may be off


@dataclass(frozen=True)
class Ended:
    """A launch that is over: the program's exit status, and the reports in the order of their capture."""

    status: int
    reports: list[Path]

    def said(self) -> str:
        """Return a line on how the program ended, "" if well."""
        if not self.status:
            return ""
        number = self.status - launch.KILLED
        said = f"the program ended with status {self.status}"
        if number not in set(signal.Signals):
            return said
        return f"{said} ({signal.Signals(number).name}); what it recorded last may be lost"


@dataclass(frozen=True)
class Plan:
    """A command that is ready to be run, with what it adds to the environment."""

    tool: tool.Tool
    request: Request
    report: Path
    options: Line
    program: Sequence[str]
    added: Mapping[str, str]

    @property
    def importable(self) -> bool:
        """Whether `bridge import` reads the reports."""
        return self.tool.name == "nsys"

    def shown(self) -> str:
        """Return the command as a shell takes it."""
        added = [f"{name}={shlex.quote(value)}" for name, value in self.added.items()]
        return " ".join([*added, shlex.join(self._command(self.tool.name))])

    def run(self) -> Ended:
        """Run it to its end; raises CaptureError, with the program's status, if no report came out."""
        before, begun_ns = reports.there(self.report), time.time_ns()
        command = self._command(self.tool.path)
        try:
            status = launch.run(command, {**os.environ, **self.added}, apart=self.importable)
        except OSError as error:
            raise CaptureError(f"{self.tool.path}: {error.strerror}", NOT_EXECUTABLE) from error
        ended = Ended(status, reports.came_out(self.report, before))
        if not ended.reports:
            lines = [ended.said(), f"no report: {self._reason(begun_ns)}"]
            raise CaptureError("; ".join(filter(None, lines)), status or FAILED)
        return ended

    def _command(self, first: str) -> list[str]:
        verb = ["profile"] if self.importable else []
        return [first, *verb, *self.options.words, *self.program]

    def _reason(self, begun_ns: int) -> str:
        if folder := reports.full(self.report):
            return f"no space is left in {folder.resolve()}"
        since = begun_ns - CLOCK_SLACK_NS
        if self.importable and (left := reports.raw(self.report, nsys.RAW, since)):
            names = ", ".join(map(str, left))
            return f"nsys captured {names} and could not import it; why is said above"
        missed = KINDS[self.tool.name].missed(self.request)
        return missed or f"{self.tool.name} wrote none; what it says of that is above"


def plan(  # noqa: PLR0913 - what is run, and what is asked of the tool
    name: str,
    words: Sequence[str],
    request: Request,
    *,
    output: Path | None = None,
    module: bool = False,
    plain: bool = False,
    auto: bool = False,
) -> Plan:
    """Make the command for a program and its arguments; raises CaptureError for what cannot work.

    ``module``, ``plain`` and ``auto`` say how the program is run, as in `program.command`.
    """
    kind = KINDS[name]
    command = program.command(words, module=module, plain=plain, auto=auto)
    report = reports.chosen(output, kind.SUFFIX, force=request.force)
    wishes = list(kind.wishes(request, report))
    found = tool.find(name)
    return Plan(found, request, report, line(found, wishes), command, _added(request, report))


def _added(request: Request, report: Path) -> dict[str, str]:
    """Return what the program gets to know: where to record, what to capture and when."""
    added = {} if os.environ.get(FOLDER) else {FOLDER: str(report.parent.resolve())}
    if request.schedule:
        added[VARIABLE] = ",".join(f"{name}={n}" for name, n in request.schedule.items())
    if request.schedule or request.capture:
        added[CAPTURE] = request.capture or NVTX
    return added
