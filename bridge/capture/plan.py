"""Launch of a program under a profiler: from the request of the user to the reports.

Everything that can be refused is refused before the program starts. Afterwards the exit status of
the program counts, and a report that was written is kept in any case.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bridge.annotate.emit import SOURCE_VARIABLE
from bridge.annotate.recording.recorder import FOLDER, OF_REPORT, PREFIX
from bridge.annotate.recording.sink import ENDING
from bridge.capture import ncu, nsys, tool
from bridge.capture.cupti import launch as cupti
from bridge.capture.interpreter import (
    ELF,
    beginning,
    is_other_program,
    is_python,
    python_words,
    unannotated,
)
from bridge.capture.session.control import NVTX
from bridge.capture.session.schedule import SCHEDULE_VARIABLE
from bridge.capture.tool import (
    FAILED,
    NOT_EXECUTABLE,
    NOT_FOUND,
    CaptureError,
    Line,
    MisuseError,
    Request,
    command_line,
)
from bridge.frameworks.autorun import LAUNCHER, child_environment, parse_options
from bridge.output import MAX_NAME

# -- The command of the program: a Python script, a module, or any command


def is_command(words: Sequence[str], *, module: bool, plain: bool) -> bool:
    """Return whether words are a command, and not a script or a module for this Python.

    ``plain``: they stand after --. Without it they are a command if the first word is a program, and no
    script of Python here. Raises MisuseError for a ``module`` after --.
    """
    if plain and module:
        remedy = ": leave -- and the interpreter away" if is_python(words[0]) else ""
        text = f"-m goes with a program for this Python, not with a command after --{remedy}"
        raise MisuseError(text)
    if plain or module:
        return plain
    path, program = Path(words[0]), shutil.which(words[0])
    if path.is_dir():
        return program is not None and not (path / "__main__.py").exists()
    return is_other_program(path) if path.exists() else program is not None


def program_command(
    words: Sequence[str], *, module: bool, plain: bool, auto: Sequence[str] | None
) -> list[str]:
    """Return the command for a program and its arguments.

    ``module``: the first word is a module for this interpreter. ``plain``: it is a command, not a
    Python script. ``auto``: run it as `bridge.autorun` with these options does, started by its path;
    a command is annotated by its environment alone. Raises CaptureError if the program cannot be run.
    """
    if plain:
        return _checked_command(words)
    if not module:
        _check_script(words[0])
    autorun = [] if auto is None else [LAUNCHER, *auto]
    return [sys.executable, *autorun, *(["-m"] if module else []), *words]


# What --auto annotates of ops, by the option; on a GPU PyTorch itself emits their ranges.
OPS = {"--shapes": ["ops with input shapes"], "--ops": ["ops"], "--no-ops": []}


def annotation_line(command: Sequence[str], *, plain: bool, auto: Sequence[str] | None) -> str:
    """Return a line on what is annotated when a program runs."""
    if auto is not None:
        ops = next((OPS[flag] for flag in OPS if flag in auto), ["on a GPU ops"])
        torch = ["modules", *ops, "optimizer steps"]
        where = " in all Python processes of the command" if plain else ""
        what = f"annotates PyTorch ({', '.join(torch)}, data loading), JAX and CuPy{where}"
        return (plain and unannotated(command)) or what
    starts_python = not plain or python_words(command)
    advice = "; --auto adds PyTorch modules, optimizer steps and data loading, JAX and CuPy"
    return f"annotates nothing: the ranges are the program's own{advice if starts_python else ''}"


def unrecorded_remedy(words: Sequence[str], *, module: bool, plain: bool, auto: bool) -> str:
    """Return a line on how to record ranges of a program that has none, with the command where there is one."""
    by_hand = "mark its functions with @bridge.nvtx_op"
    if auto:
        return f"--auto found no PyTorch, JAX or CuPy in the program; {by_hand}"
    if plain and not python_words(words):
        return (
            "annotate it with NVTX ranges (C, C++: nvtxRangePush and nvtxRangePop);"
            " bridge run --auto annotates Python programs that it starts"
        )
    before = ["-m"] if module else ["--"] if plain else []
    command = shlex.join(["bridge", "run", "--auto", *before, *words])
    return f"{command} annotates PyTorch, JAX and CuPy; for other code, {by_hand}"


def _checked_command(words: Sequence[str]) -> list[str]:
    for first in (words[0], f"./{words[0]}"):
        if shutil.which(first):
            return [first, *words[1:]]
    if Path(words[0]).exists() and "/" in words[0]:
        raise CaptureError(f"{words[0]}: no program that may be executed", NOT_EXECUTABLE)
    raise CaptureError(f"{words[0]}: no such program", NOT_FOUND)


def _check_script(word: str) -> None:
    script = Path(word)
    if not script.exists():
        is_file_name = script.suffix == ".py" or "/" in word
        program = "" if is_file_name else ", and no such program"
        raise CaptureError(f"{script}: no such script{program}", NOT_FOUND)
    if script.is_file():
        if not os.access(script, os.R_OK):
            raise CaptureError(f"{script}: {os.strerror(errno.EACCES)}", NOT_EXECUTABLE)
        if beginning(script).startswith(ELF):
            text = f"{script}: no script of Python, and no program that may be executed"
            raise CaptureError(text, NOT_EXECUTABLE)


# -- The reports of a launch: names, existing reports, new reports


NAME = "report"
MIN_FREE_BYTES = 1 << 20  # a report needs more


class Stamp(NamedTuple):
    """Identifies one version of a file."""

    inode: int
    size: int
    changed_ns: int


def free_name(*suffixes: str) -> Path:
    """Return the first of report1, report2 and so on of which there is no report with any of these suffixes."""
    names = (Path(f"{NAME}{n}") for n in count(1))
    return next(
        path for path in names if not any(existing_reports(Path(f"{path}{s}")) for s in suffixes)
    )


def report_path(output: Path | None, suffix: str, *, force: bool) -> Path:
    """Return the path of the report: ``output``, or the first unused of report1, report2 and so on.

    Raises CaptureError if it cannot be written, or exists and ``force`` is not set.
    """
    if output is None:
        return Path(f"{free_name(suffix)}{suffix}")
    report = output if output.suffix == suffix else output.with_name(output.name + suffix)
    if output.is_dir():
        raise CaptureError(f"{output}: a folder; name the report in it")
    if len(os.fsencode(report.stem + OF_REPORT)) > MAX_NAME:
        most = MAX_NAME - len(OF_REPORT)
        raise CaptureError(f"{report}: too long a name; give one of at most {most} bytes")
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
    """Return the existing reports of this name, including numbered capture ranges, in order."""
    numbered = re.compile(
        rf"{re.escape(report.stem)}(?:\.(\d+))?{re.escape(report.suffix)}", re.DOTALL
    )
    result = {
        path: int(match[1] or 0)
        for path in report.parent.iterdir()
        if (match := numbered.fullmatch(path.name))
    }
    return {path: _stamp(path) for path in sorted(result, key=lambda path: result[path])}


def new_reports(report: Path, before: Mapping[Path, Stamp]) -> list[Path]:
    """Return reports written since ``before``, in order.

    If there are any, removes the older ones.
    """
    now = existing_reports(report)
    fresh = [path for path, stamp in now.items() if before.get(path) != stamp and stamp.size]
    if fresh:
        for stale in now.keys() - set(fresh):
            stale.unlink(missing_ok=True)
    return fresh


def recordings_folder(report: Path) -> Path:
    """Return the folder of the recordings of a report, as report1.recordings; it may not exist."""
    return report.with_name(f"{report.stem}{OF_REPORT}")


def new_recordings(folder: Path, since_ns: int) -> list[Path]:
    """Return the recordings of a folder that were written since a time in ns."""
    recordings = folder.glob(f"{PREFIX}*{ENDING}")
    return [path for path in recordings if path.stat().st_mtime_ns >= since_ns]


METADATA = b'{"metadata":'  # begins such a line of a recording


class ModuleCost(NamedTuple):
    """What ranges of modules cost some processes: the ranges of all of them, and the time in ns that these took."""

    processes: int = 0
    ranges: int = 0
    ns: int = 0


def module_cost(recordings: Iterable[Path]) -> ModuleCost:
    """Return what ranges of modules cost, as far as processes have recorded it; each counts by its last word."""
    costs: dict[tuple[Any, Any], tuple[int, int]] = {}
    for path in recordings:
        with suppress(OSError, ValueError):  # of a damaged one the import tells
            costs |= _cost_of_process(path)
    return ModuleCost(len(costs), *(sum(column) for column in zip(*costs.values(), strict=True)))


def _cost_of_process(path: Path) -> dict[tuple[Any, Any], tuple[int, int]]:
    """Return ranges and ns by host and number of the process that a recording is of; raises OSError, ValueError."""
    result: dict[tuple[Any, Any], tuple[int, int]] = {}
    with path.open("rb") as file:
        head = json.loads(file.readline())
        for line in (json.loads(line) for line in file if line.startswith(METADATA)):
            match head, line:
                case (
                    {"host": host, "pid": pid},
                    {"metadata": {"annotation_cost": {"ranges": int(ranges), "ns": int(ns)}}},
                ) if 0 < ranges <= ns:
                    result[host, pid] = ranges, ns
    return result


def raw_captures(report: Path, suffix: str, since_ns: int) -> list[Path]:
    """Return raw captures (files with ``suffix``) without a report, written since a time in ns."""
    left = existing_reports(report.with_suffix(suffix))
    return [path for path, stamp in left.items() if stamp.changed_ns >= since_ns]


def full_folder(report: Path) -> Path | None:
    """Return the full one of the folders of the report and of temporary files, or None."""
    folders = (report.parent, Path(tempfile.gettempdir()))
    return next((path for path in folders if shutil.disk_usage(path).free < MIN_FREE_BYTES), None)


def _stamp(path: Path) -> Stamp:
    result = path.lstat()
    return Stamp(result.st_ino, result.st_size, result.st_mtime_ns)


# -- Running the command: signals are forwarded, the exit status is returned


FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)  # Python ignores the first two
FROM_TERMINAL = 0x80  # SI_KERNEL: every process of the foreground group gets the signal
POLL_S = 1.0
SIGNAL_STATUS = 128  # exit status 128 + n: ended by signal n


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    apart: bool,
    heard: list[int] | None = None,
    limit: Limit | None = None,
) -> int:
    """Run a command to its end and return its exit status, 128 + n if a signal n ended it.

    ``apart``: the tool gets its own process group, so that signals of the terminal reach only this
    process. This is for tools that run the program in its own session, as nsys does: from another
    group a program could not read the terminal. The signals that were forwarded are added to ``heard``. ``limit`` ends
    a tool that takes too long. Raises OSError if the command cannot be started.
    """
    forwarded = {number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN}
    # If SIGCHLD were ignored, the exit status would be lost.
    old_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
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
        given = [] if heard is None else heard
        return _wait(tool, forwarded, given, apart=apart, limit=limit)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGCHLD, old_handler or signal.SIG_DFL)


def _wait(
    tool: int,
    forwarded: set[signal.Signals],
    heard: list[int],
    *,
    apart: bool,
    limit: Limit | None,
) -> int:
    """Forward signals until the tool ends; return its exit status."""
    while True:
        received = signal.sigtimedwait({*forwarded, signal.SIGCHLD}, POLL_S)
        if received is not None and received.si_signo != signal.SIGCHLD:
            heard.append(received.si_signo)
            _forward(tool, received, apart=apart)
        pid, status = os.waitpid(tool, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNAL_STATUS - code
        if limit:
            limit.keep(tool)


def _forward(tool: int, received: signal.struct_siginfo, *, apart: bool) -> None:
    """Forward a signal to the program, or to the tool if the program does not run."""
    to_all = received.si_code == FROM_TERMINAL
    if to_all and not apart:
        return  # the program already got it
    leaders = session_leaders(tool)
    for pid in leaders or [tool]:
        with suppress(ProcessLookupError, PermissionError):
            (os.killpg if to_all else os.kill)(pid, received.si_signo)


GRACE_S = 20.0  # for what is ended to end by itself


class Limit:
    """Ends a tool after ``seconds``: first the program that it runs and all below, so that it may write what it has.

    ``program`` is the command of the program. ``is_over`` tells whether the time was up.
    """

    def __init__(self, seconds: float, program: Sequence[str]) -> None:
        self.next = time.monotonic() + seconds
        self.program = tuple(program)
        self.signals = [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]
        self.is_over = False

    def keep(self, tool: int) -> None:
        """End the tool if its time is up, by what has not been tried yet."""
        if time.monotonic() < self.next or not self.signals:
            return
        below = descendants(tool)
        own = [pid for pid in below if is_run_as(self.program, _words_of(pid))] or below[-1:]
        own += descendants(own[0]) if own else [tool]
        for pid in [*below, tool] if self.is_over else dict.fromkeys(own):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, self.signals[0])
        self.signals = self.signals[1:]
        self.next, self.is_over = time.monotonic() + GRACE_S, True


def is_run_as(program: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Return whether a process with these words runs a program: found by its path, or behind its interpreter."""
    name = Path(program[0]).name
    return any(
        own[1:] == program[1:] and Path(own[0]).name == name for own in (words, words[1:]) if own
    )


def _words_of(pid: int) -> tuple[str, ...]:
    """Return the command of a process, () if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return ()
    return tuple(map(os.fsdecode, words))


def descendants(above: int) -> list[int]:
    """Return the processes below one, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent, _, _ in _processes():
        children.setdefault(parent, []).append(pid)
    result = [above]
    for pid in result:
        result += children.get(pid, ())
    return result[1:]


def session_leaders(above: int) -> list[int]:
    """Return the running descendants of a process that lead their own session."""
    children: dict[int, list[int]] = {}
    leading = set()
    for pid, parent, session, ended in _processes():
        children.setdefault(parent, []).append(pid)
        if pid == session and not ended:
            leading.add(pid)
    result, left = [], list(children.get(above, ()))
    while left:
        pid = left.pop()
        if pid in leading:
            result.append(pid)
        else:
            left += children.get(pid, ())
    return result


def _processes() -> list[tuple[int, int, int, bool]]:
    """Return pid, parent, session, and whether it has ended, of every visible process."""
    result = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name is in brackets, and may itself contain brackets and spaces.
            state, parent, _, session = (
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            )
            result.append((int(folder.name), int(parent), int(session), state in "ZX"))
    return result


# -- Whether nsys began the program: it fails to now and then, and the program may then be tried again


TRIES = 3
STARTS = Path(__file__).parent / "start"


def starter() -> Path | None:
    """Return the program of `start/start.c` for this machine, None if there is none that can run."""
    path = STARTS / f"start-{platform.machine()}"
    return path if os.access(path, os.X_OK) else None


# What the starter notes in the mode of a file, which is read through the open file: the program may have removed it.
# Other modes are the errno with which the system refused to execute the program.
NEW, BEGUN = 0o600, 0o400


def run_until_begun(
    profile: Sequence[str], program: Sequence[str], environ: Mapping[str, str]
) -> int:
    """Run a program under nsys and return its exit status; tries again if nsys did not begin it.

    ``profile`` is the command of nsys without the program. Raises CaptureError if it never began, with status 128 + n
    if a signal n came before; OSError if nsys cannot be started.
    """
    start = starter()
    if start is None:
        return run_command([*profile, *program], environ, apart=True)
    with (
        tempfile.TemporaryDirectory(prefix="bridge-run-") as folder,
        Path(folder, ".begun").open("xb") as mark,
    ):
        os.fchmod(mark.fileno(), NEW)
        link = Path(folder, Path(program[0]).name)  # nsys names the process after it
        link.symlink_to(start)
        path = shutil.which(program[0]) or program[0]
        command = [*profile, str(link), mark.name, path, *program]
        heard: list[int] = []
        for left in reversed(range(TRIES)):
            status = run_command(command, environ, apart=True, heard=heard)
            noted = stat.S_IMODE(os.fstat(mark.fileno()).st_mode)
            if noted == BEGUN:
                return status
            if noted != NEW:
                text = f"{path}: cannot be executed: {os.strerror(noted)}"
                raise CaptureError(text, NOT_EXECUTABLE)
            if heard:  # nsys ends with any status then
                name = signal.Signals(heard[0]).name
                text = f"{name} came before nsys had started the program"
                raise CaptureError(text, SIGNAL_STATUS + heard[0])
            if not FAILED <= status < SIGNAL_STATUS:
                return status
            if left:
                sys.stderr.write(f"nsys did not start the program (status {status}): once more\n")
    text = f"nsys did not start the program in {TRIES} tries (status {status}); what it says of that is above"
    raise CaptureError(text, NOT_EXECUTABLE)


# -- Plans


KINDS = {"nsys": nsys, "ncu": ncu, cupti.NAME: cupti}
CAPTURE = "BRIDGE_CAPTURE"
CLOCK_SLACK_NS = 2_000_000_000  # tolerance for the clock of a file system


@dataclass(frozen=True)
class LaunchResult:
    """A finished launch: the program's exit status, and the reports in the order of capture.

    ``recordings`` is the folder of the recordings that the program wrote, None if it wrote none there. ``cost`` is
    what `module_cost` read in them.
    """

    status: int
    reports: list[Path]
    recordings: Path | None = None
    cost: ModuleCost | None = None

    def failure(self) -> str:
        """Return a line on how the program failed, "" if it succeeded."""
        if not self.status:
            return ""
        number = self.status - SIGNAL_STATUS
        text = f"the program ended with status {self.status}"
        if number not in set(signal.Signals):
            return text
        return f"{text} ({signal.Signals(number).name}); what it recorded last may be lost"


@dataclass(frozen=True)
class Plan:
    """A command that is ready to run, with the variables that it adds to the environment."""

    tool: tool.Tool
    request: Request
    report: Path
    options: Line
    program: Sequence[str]
    added: Mapping[str, str]
    annotations: str = ""  # a line on what is annotated
    unrecorded_remedy: str = ""  # a line on what to do if nothing is recorded

    @property
    def is_nsys(self) -> bool:
        """Whether the tool is Nsight Systems, which runs the program in a session of its own."""
        return self.tool.name == "nsys"

    @property
    def records_itself(self) -> bool:
        """Whether the program records itself by CUPTI: no profiler starts it."""
        return self.tool.name == cupti.NAME

    def shell_command(self) -> str:
        """Return the command as shell text."""
        added = [f"{name}={shlex.quote(value)}" for name, value in self.added.items()]
        return " ".join([*added, shlex.join(self._command(self.tool.name))])

    def run(self, heard: list[int] | None = None, limit: Limit | None = None) -> LaunchResult:
        """Run the command; ``heard`` and ``limit`` are those of `run_command`, for ncu.

        Raises CaptureError with the program's status if no report was written.
        """
        before, begun_ns = existing_reports(self.report), time.time_ns()
        command = self._command(self.tool.path)
        try:
            status = self._run_to_end(command, heard, limit)
        except OSError as error:
            raise CaptureError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from error
        except CaptureError:  # the program never ran: a report is one of nothing
            for path in new_reports(self.report, before):
                path.unlink(missing_ok=True)
            raise
        folder = recordings_folder(self.report)
        recordings = new_recordings(folder, begun_ns - CLOCK_SLACK_NS)
        fresh, cost = new_reports(self.report, before), module_cost(recordings)
        result = LaunchResult(status, fresh, folder if recordings else None, cost)
        if not result.reports:
            lines = [result.failure(), f"no report: {self._reason(begun_ns)}"]
            raise CaptureError("; ".join(filter(None, lines)), status or FAILED)
        return result

    def _run_to_end(
        self, command: Sequence[str], heard: list[int] | None, limit: Limit | None
    ) -> int:
        """Run the command, make the report if the program recorded itself, and return the exit status."""
        environ = {**os.environ, **self.added}
        if self.is_nsys:
            return run_until_begun(self._profiler(self.tool.path), self.program, environ)
        if not self.records_itself:
            return run_command(command, environ, apart=False, heard=heard, limit=limit)
        from bridge.capture.cupti import export, live  # load NumPy, as nothing else here does

        spools = cupti.spool_folder(self.report)
        export.remove_spools(spools)  # of a run that was killed
        with live.live_table(spools) if self.request.live else nullcontext():
            status = run_command(command, environ, apart=False)
        with suppress(CaptureError):  # the lack of a report has its reason
            export.write_report(spools, self.report, force=True)
            export.remove_spools(spools)
        return status

    def _command(self, first: str) -> list[str]:
        if self.records_itself:
            program = shutil.which(self.program[0]) or self.program[0]
            return [program, *self.program[1:]]
        return [*self._profiler(first), *self.program]

    def _profiler(self, first: str) -> list[str]:
        """Return the command of the tool without the program."""
        return [first, *(["profile"] if self.is_nsys else []), *self.options.words]

    def _reason(self, begun_ns: int) -> str:
        if folder := full_folder(self.report):
            return f"no space is left in {folder.resolve()}"
        since = begun_ns - CLOCK_SLACK_NS
        if self.is_nsys and (left := raw_captures(self.report, nsys.RAW, since)):
            names = ", ".join(map(str, left))
            return f"nsys captured {names} and could not import it; why is said above"
        why_no_report = KINDS[self.tool.name].why_no_report(self.request)
        again = "; if that is no fault of the program, run it again" if self.is_nsys else ""
        return why_no_report or f"{self.tool.name} wrote none; what it says of that is above{again}"


def plan(  # noqa: PLR0913 - what is run, and what is asked of the tool
    name: str,
    words: Sequence[str],
    request: Request,
    *,
    output: Path | None = None,
    module: bool = False,
    plain: bool = False,
    auto: Sequence[str] | None = None,
) -> Plan:
    """Return the plan for a program and its arguments; raises CaptureError if it cannot work.

    ``module``, ``plain`` and ``auto`` are those of `program_command`.
    """
    kind = KINDS[name]
    plain = is_command(words, module=module, plain=plain)
    command = program_command(words, module=module, plain=plain, auto=auto)
    report = report_path(output, kind.SUFFIX, force=request.force)
    tool_options = list(kind.tool_options(request, report))
    installed = cupti.find() if name == cupti.NAME else tool.find_tool(name)
    added = _environment(request, report)
    if plain and auto is not None:
        added |= child_environment(parse_options(list(auto))[0])
    if name == cupti.NAME:
        added |= cupti.environment(request, report)
    return Plan(
        tool=installed,
        request=request,
        report=report,
        options=command_line(installed, tool_options),
        program=command,
        added=added,
        annotations=annotation_line(command, plain=plain, auto=auto),
        unrecorded_remedy=unrecorded_remedy(
            words, module=module, plain=plain, auto=auto is not None
        ),
    )


def _environment(request: Request, report: Path) -> dict[str, str]:
    """Return variables for the program: where to record, what to capture, and when."""
    folder = str(recordings_folder(report).resolve())
    added = {} if os.environ.get(FOLDER) else {FOLDER: folder}
    if request.schedule:
        added[SCHEDULE_VARIABLE] = ",".join(f"{name}={n}" for name, n in request.schedule.items())
    if request.schedule or request.capture:
        added[CAPTURE] = request.capture or NVTX
    if request.backtrace:
        added[SOURCE_VARIABLE] = "1"
    return added
