"""Sessions: which steps of a program are profiled, and what becomes of what was recorded.

A session always records host times itself; where a tool is attached it drives what that captures as
well. The invariant: one session runs at a time in a process, and what it changed is as before when it
has ended, whatever ended it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.capture.session.cycle import Cycle
from bridge.capture.session.options import Options, checked_options
from bridge.capture.session.recordings import Recorded
from bridge.capture.session.schedule import Action
from bridge.capture.session.transitions import Machine, call_all

if TYPE_CHECKING:
    from pandas import DataFrame

    from bridge.report import Joined


# -- Functions whose every call is a session


def decorated(session: Profile, function: F) -> F:
    """Return the function, with a session around each call; raises TypeError for what it cannot surround."""
    made: Any = function
    if isinstance(made, staticmethod | classmethod):
        return type(made)(decorated(session, made.__func__))  # type: ignore[return-value]
    if isinstance(made, type) or not callable(made) or _goes_on(made):
        raise TypeError(f"profile decorates functions and coroutine functions, not {made!r}")
    surround = _coroutine if iscoroutinefunction(made) else _plain
    return wraps(made)(surround(session, made))  # type: ignore[return-value]


def _goes_on(function: Any) -> bool:
    """Tell whether a function is a generator's, whose call ends before it has begun."""
    return isgeneratorfunction(function) or isasyncgenfunction(function)


def _plain(session: Profile, function: Callable[..., Any]) -> Callable[..., Any]:
    def surrounded(*args: Any, **kwargs: Any) -> Any:
        with _unless_running(session):
            return function(*args, **kwargs)

    return surrounded


def _coroutine(session: Profile, function: Callable[..., Any]) -> Callable[..., Any]:
    async def surrounded(*args: Any, **kwargs: Any) -> Any:
        with _unless_running(session):
            return await function(*args, **kwargs)

    return surrounded


@contextmanager
def _unless_running(session: Profile) -> Iterator[None]:
    """Surround a block with the session, unless one runs."""
    if current_session() is not None or not _begun(session):
        yield
        return
    try:
        yield
    finally:
        session.stop()


def _begun(session: Profile) -> bool:
    try:
        session.start()
    except SessionRunsError:  # by now: another thread was faster
        return False
    return True


# -- Sessions: which steps of a program are profiled, and what becomes of what was recorded


F = TypeVar("F", bound=Callable[..., Any])

STEP = "ProfilerStep#{}"  # as PyTorch's profiler names them


class Profile:
    """A session: `start` and `stop` it, surround a block with it, or decorate a function.

    In a forked child it goes on recording, into a file of the child's own, until the child stops it or
    ends; the steps, the tool's capture and `on_trace_ready` are the parent's.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._recorded = Recorded(options)
        self._cycle = Cycle(options, self._recorded, self._ready)
        self._machine = Machine(options.schedule, self._cycle)
        self._numbered = False  # whether steps are ranges
        self._step: stack.Entry | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin with step 0; raises RuntimeError while a session runs, this one or another."""
        self._machine.refuse_within("begin")
        parents = inherited_session()
        if parents is not None:
            parents.stop()
        claim_process(self)
        self._numbered = self._options.schedule is not None
        try:
            self._machine.begin()
        except BaseException:
            self._abandon(self._cycle.stop)
            raise
        self._stepped()

    def stop(self) -> None:
        """End; what was recorded is ready. If the session does not run, do nothing.

        Between two steps, as in ``on_trace_ready``, it ends when the next one has begun.
        """
        if inherited_session() is self:
            self._abandon(self._cycle.leave)
        elif self._machine.changing:
            self._stopping = own_session() is self
        elif own_session() is self:
            call_all(self._close_step, self._machine.end, self._ended)

    def step(self) -> None:
        """Go on to the next step of the schedule; raises RuntimeError if the session does not run."""
        if inherited_session() is self:
            return
        self._machine.refuse_within("step")
        self._close_step()
        self._numbered = True
        try:
            self._machine.step()
        finally:
            self._stepped()

    def pause(self) -> None:
        """Record and emit nothing until `resume`; the steps go on."""
        if current_session() is self:
            self._cycle.mute(True)

    def resume(self) -> None:
        """Record again."""
        self._cycle.mute(False)

    @property
    def is_profiling(self) -> bool:
        """Whether this step is recorded, and the session not paused."""
        return current_session() is self and self._cycle.recording

    @property
    def current_action(self) -> Action:
        """What is done with this step."""
        return self._machine.action

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
        return decorated(self, function)

    @property
    def joined(self) -> Joined:
        """What was recorded last, as `bridge.load` gives it; raises `ReportError` if nothing was."""
        return self._recorded.joined()

    def by(self, view: str, **choices: Any) -> DataFrame:
        """Return a table of what was recorded last, as `Joined.by` does."""
        return self.joined.by(view, **choices)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a timeline of what was recorded last: ``.json`` or ``.json.gz``; replaces the file."""
        self._recorded.dump(path)

    def dump(self, path: str | Path | None = None, *, finished: bool = True) -> None:
        """Write what was recorded last, by default to the session's own file, replacing it.

        A trace for ``.json`` and ``.json.gz``, a recording for ``.jsonl``. Unless ``finished`` is False,
        the session ends. Raises ValueError without a file, `ReportError` if nothing was recorded.
        """
        if finished:
            self.stop()
        self._recorded.dump(path)

    def add_metadata(self, key: str, value: Any) -> None:
        """Say something of the run, for recording and trace; raises TypeError for what JSON cannot say."""
        self._recorded.about({key: value})

    def clear(self) -> None:
        """Forget what was recorded; what is open goes on."""
        self._cycle.clear()

    def _ready(self) -> None:
        if self._options.on_trace_ready is not None:
            self._options.on_trace_ready(self)

    def _stepped(self) -> None:
        """Begin what a step has of its own; end the session if that was asked for meanwhile."""
        if self._stopping:
            self.stop()
        elif self._machine.running:
            if self._numbered and not state.idle:
                self._step = stack.Entry(Label(STEP.format(self.step_num)), stack.new_call_id())
                stack.push(self._step)
            self._cycle.sample()

    def _close_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            stack.close(step)

    def _abandon(self, end_cycle: Callable[[], None]) -> None:
        """End without a word to the user: in a forked child, and where the beginning failed."""
        call_all(self._close_step, end_cycle, self._machine.abandon, self._ended)

    def _ended(self) -> None:
        self._stopping = False
        if self._cycle.on:  # an interrupt came in the midst of a transition
            self._cycle.stop()
        self._cycle.mute(False)
        release_process(self)


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
    sample_rate: int = 0,
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
    for details, ``with_modules`` makes modules ranges, ``profile_memory`` samples memory at each step,
    ``sample_rate`` at every so many ops as well.
    ``path`` is the file (``.jsonl``, ``.json``, ``.json.gz``) that each cycle is written to; a ``.jsonl``
    grows while the session runs, every ``dump_period`` seconds at the latest. ``acc_events`` puts all
    cycles into one. ``capture`` is how a tool is told: see docs/sessions.md. Raises TypeError or
    ValueError for what makes no sense.
    """
    session = Profile(checked_options(options))
    return session if function is None else session(function)


def is_profiling() -> bool:
    """Tell whether a session records now in this process."""
    session = current_session()
    return session is not None and session.is_profiling


# -- Which session runs in this process


POOLS = "concurrent.futures.thread"  # cannot be imported any more when a process ends

_runs: dict[int, list[Profile]] = {}  # by process: in a forked child also that of its parent


class SessionRunsError(RuntimeError):
    """A session runs in this process already."""


def claim_process(session: Profile) -> None:
    """Have this session run; raises SessionRunsError while one does."""
    mine = [session]
    if _runs.setdefault(os.getpid(), mine) is not mine:
        raise SessionRunsError("a session runs in this process already: stop it first")
    _stop_at_exit()


def release_process(session: Profile) -> None:
    """Have it run no more."""
    for owner in [pid for pid, run in list(_runs.items()) if session in run]:
        _runs.pop(owner, None)


def own_session() -> Profile | None:
    """Return the session that was started in this process."""
    return next(iter(_runs.get(os.getpid(), ())), None)


def inherited_session() -> Profile | None:
    """Return the session that ran in the parent when this process was forked."""
    pid = os.getpid()
    return next((run[0] for owner, run in list(_runs.items()) if owner != pid), None)


def current_session() -> Profile | None:
    """Return the session that this process records for, if any."""
    return own_session() or inherited_session()


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
    session = current_session()
    if session is not None:
        # They refuse work by now; but a session that writes its trace waits for what it gives them.
        setattr(import_module(POOLS), "_shutdown", False)  # noqa: B010 (no public name)
        session.stop()
