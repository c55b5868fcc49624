"""A profiler runs a program; signals reach the program, and its exit status comes back.

The invariant: a signal that the launcher gets reaches the program once, and nothing is left waiting.
Whether the program ends by it is the program's own affair; the report is written either way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)  # Python ignores the first two
BY_TERMINAL = 0x80  # SI_KERNEL: then every process of the foreground got it
PATIENCE_S = 1.0
KILLED = 128


def run(command: Sequence[str], environ: Mapping[str, str], *, apart: bool) -> int:
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
