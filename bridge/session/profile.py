"""Sessions: which steps of a program are profiled, and what becomes of what was recorded.

A session always records host times itself; where a tool is attached it drives what that captures as
well. The invariant: one session runs at a time in a process, and what it changed is as before when it
has ended, whatever ended it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from bridge.annotate import callid, stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.session.capture import capture as capture_of
from bridge.session.cycle import Cycle
from bridge.session.machine import RECORDING, Machine
from bridge.session.options import Options, checked_path

if TYPE_CHECKING:
    from pandas import DataFrame

    from bridge.joined import Joined

F = TypeVar("F", bound=Callable[..., Any])

STEP = "ProfilerStep#{}"  # as PyTorch's profiler names them
_starting = Lock()


class _Process:
    """The session that runs, and in which process it began."""

    session: Profile | None = None
    pid = 0


class Profile:
    """A session: `start` and `stop` it, surround a block with it, or decorate a function."""

    def __init__(self, options: Options) -> None:
        ready = options.on_trace_ready
        self._cycle = Cycle(
            options, capture_of(options.capture), lambda: ready(self) if ready else None
        )
        self._machine = Machine(options.schedule, self._cycle)
        self._numbered = options.schedule is not None  # whether steps are ranges
        self._step: stack.Entry | None = None
        self._paused = False

    def start(self) -> None:
        """Begin with step 0; raises RuntimeError while a session runs, this one or another."""
        with _starting:
            if is_running():
                raise RuntimeError("a session runs in this process already: stop it first")
            _Process.session, _Process.pid = self, os.getpid()
        atexit.register(self.stop)
        try:
            self._machine.begin()
        except BaseException:
            self._ended()
            raise
        self._open_step()

    def stop(self) -> None:
        """End; what was recorded is ready. If the session does not run, do nothing."""
        if _Process.session is not self:
            return
        if _Process.pid != os.getpid():
            self._cycle.detach()
            return
        self._close_step()
        try:
            self._machine.end()
        finally:
            self._ended()

    def step(self) -> None:
        """Go on to the next step of the schedule; raises RuntimeError if the session does not run."""
        if _Process.session is self and _Process.pid != os.getpid():
            return  # a forked child: the steps are its parent's
        self._close_step()
        self._numbered = True
        try:
            self._machine.step()
        finally:
            self._open_step()
            self._cycle.step()

    def pause(self) -> None:
        """Record and emit nothing until `resume`; the steps go on."""
        if self._running and not self._paused:
            self._paused = True
            self._cycle.mute()

    def resume(self) -> None:
        """Record again."""
        if self._paused:
            self._paused = False
            self._cycle.unmute()

    def clear(self) -> None:
        """Forget what was recorded."""
        self._cycle.clear()

    @property
    def is_profiling(self) -> bool:
        """Whether this step is recorded, and the session not paused."""
        return self._running and self._machine.action in RECORDING and not self._paused

    @property
    def step_num(self) -> int:
        """The number of the step, counted from 0."""
        return self._machine.step_number

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def __call__(self, function: F) -> F:
        """Decorate a function: each call of it is a session, but for a call within one."""
        from bridge.session.decorated import decorated  # noqa: PLC0415 (functools, where it is used)

        return decorated(self, function, is_running)

    @property
    def joined(self) -> Joined:
        """What was recorded last, as `bridge.load` gives it; raises `ReportError` if nothing was."""
        return self._cycle.joined()

    def by(self, view: str, **choices: Any) -> DataFrame:
        """Return a table of what was recorded last, as `Joined.by` does."""
        return self.joined.by(view, **choices)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a timeline of what was recorded last: ``.json`` or ``.json.gz``; replaces the file."""
        self._cycle.dump(path)

    def dump(self, path: str | Path | None = None, *, finished: bool = True) -> None:
        """Write what was recorded last, by default to the session's own file, replacing it.

        A trace for ``.json`` and ``.json.gz``, a recording for ``.jsonl``. Unless ``finished`` is False,
        the session ends. Raises ValueError without a file, `ReportError` if nothing was recorded.
        """
        if finished:
            self.stop()
        self._cycle.dump(path)

    def add_metadata(self, key: str, value: Any) -> None:
        """Say something of the run, for recording and trace; raises TypeError for what JSON cannot say."""
        self._cycle.about({key: value})

    @property
    def _running(self) -> bool:
        return _Process.session is self and _Process.pid == os.getpid()

    def _open_step(self) -> None:
        if self._numbered and self._machine.running and not state.idle:
            self._step = stack.Entry(Label(STEP.format(self.step_num)), callid.new())
            stack.push(self._step)

    def _close_step(self) -> None:
        if self._step is not None:
            stack.close(self._step)
            self._step = None

    def _ended(self) -> None:
        _Process.session = None
        self._paused = False
        self._cycle.unmute()
        atexit.unregister(self.stop)


@overload
def profile(function: F, /) -> F: ...


@overload
def profile(
    *,
    schedule: Callable[[int], Any] | None = None,
    on_trace_ready: Callable[[Profile], Any] | None = None,
    level: int = 1,
    record_shapes: bool = False,
    profile_memory: bool = False,
    with_flops: bool = False,
    with_modules: bool = False,
    acc_events: bool = False,
    path: str | Path | None = None,
    dump_period: float | None = None,
    capture: str | None = "auto",
    metadata: dict[str, Any] | None = None,
) -> Profile: ...


def profile(function: Any = None, /, **options: Any) -> Any:
    """Make a session; `@profile` above a function makes each call of it one.

    ``schedule`` says which steps are recorded (by default all), ``on_trace_ready`` is called with the
    session when a cycle of them is. ``level`` 0 records the program's own annotations, 1 PyTorch's ops as
    well, where it is loaded, 2 garbage collections too. ``record_shapes`` and ``with_flops`` ask every op
    for details, ``with_modules`` makes modules ranges, ``profile_memory`` samples memory at each step.
    ``path`` is the file (``.jsonl``, ``.json``, ``.json.gz``) that each cycle is written to; a ``.jsonl``
    grows while the session runs, every ``dump_period`` seconds at the latest. ``acc_events`` puts all
    cycles into one. ``capture`` is how a tool is told: see docs/sessions.md. Raises TypeError or
    ValueError for what makes no sense.
    """
    path, metadata = checked_path(options.pop("path", None)), options.pop("metadata", None) or {}
    session = Profile(Options(path=path, metadata=metadata, **options))
    return session if function is None else session(function)


def is_running() -> bool:
    """Tell whether a session runs in this process, whatever it does with this step."""
    return _Process.session is not None and _Process.pid == os.getpid()


def is_profiling() -> bool:
    """Tell whether a session records now in this process."""
    session = _Process.session
    return session is not None and session.is_profiling
