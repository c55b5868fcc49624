"""Which session runs in this process.

The invariant: one at most, whichever threads try at once; nothing waits, for a fork or a signal may
come in the midst of it.
"""

from __future__ import annotations

import atexit
import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.capture.session.profile import Profile

POOLS = "concurrent.futures.thread"  # cannot be imported any more when a process ends

_runs: dict[int, list[Profile]] = {}  # by process: in a forked child also that of its parent


class SessionRunsError(RuntimeError):
    """A session runs in this process already."""


def claim(session: Profile) -> None:
    """Have this session run; raises SessionRunsError while one does."""
    mine = [session]
    if _runs.setdefault(os.getpid(), mine) is not mine:
        raise SessionRunsError("a session runs in this process already: stop it first")
    _stop_at_exit()


def release(session: Profile) -> None:
    """Have it run no more."""
    for owner in [pid for pid, run in list(_runs.items()) if session in run]:
        _runs.pop(owner, None)


def own() -> Profile | None:
    """Return the session that was started in this process."""
    return next(iter(_runs.get(os.getpid(), ())), None)


def inherited() -> Profile | None:
    """Return the session that ran in the parent when this process was forked."""
    pid = os.getpid()
    return next((run[0] for owner, run in list(_runs.items()) if owner != pid), None)


def current() -> Profile | None:
    """Return the session that this process records for, if any."""
    return own() or inherited()


class _Exit:
    """Whether a session that runs will be stopped when the process ends."""

    expected = False


def _stop_at_exit() -> None:
    # Once, and for good: what is registered and unregistered leaves a hole in a list each time.
    if not _Exit.expected:
        _Exit.expected = True
        import_module(POOLS)
        atexit.register(_stop)


def _stop() -> None:
    session = current()
    if session is not None:
        # They refuse work by now; but a session that writes its trace waits for what it gives them.
        setattr(import_module(POOLS), "_shutdown", False)  # noqa: B010 (no public name)
        session.stop()
