"""One launch of a program under a profiler, from what the user asked to the reports that came out.

The invariant: everything that can be refused is refused before the program starts. Afterwards the
program's own exit status counts, and a report that came out is kept whatever it was.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bridge.annotate.recording.sidecar import FOLDER
from bridge.capture import ncu, nsys, tool
from bridge.capture.request import VARIABLE, Line, Request, line
from bridge.capture.session.capture import NVTX
from bridge.capture.tool import FAILED, NOT_EXECUTABLE, NOT_FOUND, CaptureError, MisuseError

# -- The program that is profiled, as a command: a Python script, a module, or any command


PYTHON = re.compile(r"python[\d.]*")
ELF = b"\x7fELF"


def program_command(words: Sequence[str], *, module: bool, plain: bool, auto: bool) -> list[str]:
    """Return the command for a program and its arguments.

    ``module``: the first word is a module for this interpreter; ``plain``: it is a command, not a
    script of Python; ``auto``: run it through `bridge.autorun`. Raises CaptureError.
    """
    if plain and (module or auto):
        given = "-m" if module else "--auto"
        remedy = (
            ": leave -- and the interpreter away" if PYTHON.fullmatch(Path(words[0]).name) else ""
        )
        raise MisuseError(
            f"{given} goes with a program for this Python, not with a command after --{remedy}"
        )
    if plain:
        return _checked_command(list(words))
    if not module:
        _check_script(words)
    autorun = ["-m", "bridge.autorun"] if auto else []
    return [sys.executable, *autorun, *(["-m"] if module else []), *words]


def _checked_command(words: list[str]) -> list[str]:
    if shutil.which(words[0]):
        return words
    if Path(words[0]).exists() and "/" in words[0]:
        raise CaptureError(f"{words[0]}: no program that may be executed", NOT_EXECUTABLE)
    raise CaptureError(f"{words[0]}: no such program", NOT_FOUND)


def _check_script(words: Sequence[str]) -> None:
    script = Path(words[0])
    remedy = f"; a command stands after --: bridge run -- {words[0]} …"
    if not script.exists():
        program_command = shutil.which(words[0])
        raise CaptureError(
            f"{script}: no such script{remedy if program_command else ''}", NOT_FOUND
        )
    if script.is_file() and _beginning(script) == ELF:
        raise CaptureError(f"{script}: no script of Python{remedy}", NOT_EXECUTABLE)


def _beginning(script: Path) -> bytes:
    try:
        with script.open("rb") as file:
            return file.read(len(ELF))
    except OSError as error:
        raise CaptureError(f"{script}: {error.strerror}", NOT_EXECUTABLE) from error


# -- The reports of one launch: their name, those that stand in the way, those that came out


NAME = "report"
LITTLE = 1 << 20  # bytes: less than a report takes


class Stamp(NamedTuple):
    """What tells one version of a file from another."""

    inode: int
    size: int
    changed_ns: int


def report_path(output: Path | None, suffix: str, *, force: bool) -> Path:
    """Return the report to write: as named, or report1, report2 …, the first that is free.

    Raises CaptureError where it cannot be written, or is there already and not to be replaced.
    """
    if output is None:
        return next(
            one for n in count(1) if not existing_reports(one := Path(f"{NAME}{n}{suffix}"))
        )
    report = output if output.suffix == suffix else output.with_name(output.name + suffix)
    if output.is_dir():
        raise CaptureError(f"{output}: a folder; name the report in it")
    if not report.parent.is_dir():
        raise CaptureError(f"{report}: there is no folder {report.parent}")
    if not os.access(report.parent, os.W_OK | os.X_OK):
        raise CaptureError(f"{report}: nothing may be written to {report.parent.resolve()}")
    if (present := existing_reports(report)) and not force:
        raise CaptureError(
            f"{next(iter(present))}: exists; give another name, or --force to replace it"
        )
    return report


def existing_reports(report: Path) -> dict[Path, Stamp]:
    """Return the reports of this name, those of numbered capture ranges too, in their order."""
    numbered = re.compile(
        rf"{re.escape(report.stem)}(?:\.(\d+))?{re.escape(report.suffix)}", re.DOTALL
    )
    found = {
        one: int(match[1] or 0)
        for one in report.parent.iterdir()
        if (match := numbered.fullmatch(one.name))
    }
    return {path: _stamp(path) for path in sorted(found, key=lambda path: found[path])}


def new_reports(report: Path, before: Mapping[Path, Stamp]) -> list[Path]:
    """Return what was written since, in the order of the capture ranges; if any was, the rest is removed."""
    now = existing_reports(report)
    fresh = [path for path, stamp in now.items() if before.get(path) != stamp and stamp.size]
    if fresh:
        for stale in now.keys() - set(fresh):
            stale.unlink(missing_ok=True)
    return fresh


def raw_captures(report: Path, suffix: str, since_ns: int) -> list[Path]:
    """Return what the tool captured since and did not make a report of: files of that suffix."""
    left = existing_reports(report.with_suffix(suffix))
    return [path for path, stamp in left.items() if stamp.changed_ns >= since_ns]


def full_folder(report: Path) -> Path | None:
    """Return the folder that has no room left, of the report's and the one for temporary files."""
    folders = (report.parent, Path(tempfile.gettempdir()))
    return next((one for one in folders if shutil.disk_usage(one).free < LITTLE), None)


def _stamp(path: Path) -> Stamp:
    found = path.lstat()
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


# -- A profiler runs a program; signals reach the program, and its exit status comes back


FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)  # Python ignores the first two
BY_TERMINAL = 0x80  # SI_KERNEL: then every process of the foreground got it
PATIENCE_S = 1.0
KILLED = 128


def run_command(command: Sequence[str], environ: Mapping[str, str], *, apart: bool) -> int:
    """Run a command to its end and return its exit status, 128 + n if a signal n ended it.

    ``apart``: the tool gets a process group of its own, so that what the terminal sends to all comes
    here alone. That is for a tool whose program has a session of its own, as nsys has it: from another
    group a program may not read the terminal. Raises OSError if the command cannot be started.
    """
    heard = {one for one in FORWARDED if signal.getsignal(one) is not signal.SIG_IGN}
    reaping = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the status
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*heard, signal.SIGCHLD})
    group = 0 if apart else os.getpgrp()
    try:
        tool = os.posix_spawn(
            command[0],
            list(command),
            environ,
            setpgroup=group,
            setsigmask=before,
            setsigdef=RESTORED,
        )
        return _waited(tool, heard, apart=apart)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGCHLD, reaping or signal.SIG_DFL)


def _waited(tool: int, heard: set[signal.Signals], *, apart: bool) -> int:
    while True:
        came = signal.sigtimedwait({*heard, signal.SIGCHLD}, PATIENCE_S)
        if came is not None and came.si_signo != signal.SIGCHLD:
            _forward(tool, came, apart=apart)
        pid, status = os.waitpid(tool, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else KILLED - code


def _forward(tool: int, came: signal.struct_siginfo, *, apart: bool) -> None:
    """Hand a signal on: to the program, else (it has not begun, or has ended) to the tool."""
    to_all = came.si_code == BY_TERMINAL
    if to_all and not apart:
        return  # they have it already
    leaders = session_leaders(tool)
    for pid in leaders or [tool]:
        with suppress(ProcessLookupError, PermissionError):
            (os.killpg if to_all else os.kill)(pid, came.si_signo)


def session_leaders(above: int) -> list[int]:
    """Return the processes under one that lead a session of their own and have not ended."""
    children: dict[int, list[int]] = {}
    leading = set()
    for pid, parent, session, ended in _processes():
        children.setdefault(parent, []).append(pid)
        if pid == session and not ended:
            leading.add(pid)
    found, left = [], list(children.get(above, ()))
    while left:
        pid = left.pop()
        if pid in leading:
            found.append(pid)
        else:
            left += children.get(pid, ())
    return found


def _processes() -> list[tuple[int, int, int, bool]]:
    """Return pid, parent, session, and whether it has ended, of every process that can be seen."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name stands in brackets, and may hold brackets and spaces itself.
            state, parent, _, session = (
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            )
            found.append((int(folder.name), int(parent), int(session), state in "ZX"))
    return found


# -- One launch of a program under a profiler, from what the user asked to the reports that came out


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
        number = self.status - KILLED
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
        before, begun_ns = existing_reports(self.report), time.time_ns()
        command = self._command(self.tool.path)
        try:
            status = run_command(command, {**os.environ, **self.added}, apart=self.importable)
        except OSError as error:
            raise CaptureError(f"{self.tool.path}: {error.strerror}", NOT_EXECUTABLE) from error
        ended = Ended(status, new_reports(self.report, before))
        if not ended.reports:
            lines = [ended.said(), f"no report: {self._reason(begun_ns)}"]
            raise CaptureError("; ".join(filter(None, lines)), status or FAILED)
        return ended

    def _command(self, first: str) -> list[str]:
        verb = ["profile"] if self.importable else []
        return [first, *verb, *self.options.words, *self.program]

    def _reason(self, begun_ns: int) -> str:
        if folder := full_folder(self.report):
            return f"no space is left in {folder.resolve()}"
        since = begun_ns - CLOCK_SLACK_NS
        if self.importable and (left := raw_captures(self.report, nsys.RAW, since)):
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
    command = program_command(words, module=module, plain=plain, auto=auto)
    report = report_path(output, kind.SUFFIX, force=request.force)
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
