"""Sessions: profile selected steps of a program.

A session records host times itself. If a tool is attached, the session also controls its capture.
One session runs at a time in a process. When it ends, for any reason, everything that it changed is
restored.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.capture.session.cycle import Cycle
from bridge.capture.session.options import Options, checked_options
from bridge.capture.session.recordings import CycleRecording
from bridge.capture.session.schedule import Action
from bridge.capture.session.transitions import Machine, SessionRunsError, call_all

if TYPE_CHECKING:
    from pandas import DataFrame

    from bridge.analyze.tables.request import TableOptions
    from bridge.report import Report


# -- Decorated functions


def decorate(session: Session, function: F) -> F:
    """Return the function with a session around each call.

    Raises TypeError if it cannot be decorated.
    """
    target: Any = function
    if isinstance(target, staticmethod | classmethod):
        return type(target)(decorate(session, target.__func__))  # type: ignore[return-value]
    if isinstance(target, type) or not callable(target) or _is_generator_function(target):
        raise TypeError(f"profile decorates functions and coroutine functions, not {target!r}")
    surround = _coroutine if iscoroutinefunction(target) else _plain
    return wraps(target)(surround(session, target))  # type: ignore[return-value]


def _is_generator_function(function: Any) -> bool:
    """Return whether calls of a function return generators, which run after the call."""
    return isgeneratorfunction(function) or isasyncgenfunction(function)


def _plain(session: Session, function: Callable[..., Any]) -> Callable[..., Any]:
    def surrounded(*args: Any, **kwargs: Any) -> Any:
        with _unless_running(session):
            return function(*args, **kwargs)

    return surrounded


def _coroutine(session: Session, function: Callable[..., Any]) -> Callable[..., Any]:
    async def surrounded(*args: Any, **kwargs: Any) -> Any:
        with _unless_running(session):
            return await function(*args, **kwargs)

    return surrounded


@contextmanager
def _unless_running(session: Session) -> Iterator[None]:
    """Run a block in the session, unless a session is running."""
    if current_session() is not None or not _try_start(session):
        yield
        return
    try:
        yield
    finally:
        session.stop()


def _try_start(session: Session) -> bool:
    try:
        session.start()
    except SessionRunsError:  # another thread started it, or is starting or stopping it
        return False
    return True


# -- Sessions


F = TypeVar("F", bound=Callable[..., Any])

CPU, CUDA = "CPU", "CUDA"  # kinds of activity, by PyTorch's names
STEP = "ProfilerStep#{}"  # as in PyTorch's profiler


class Session:
    """A session: call `start` and `stop`, or use it as a context manager or decorator.

    In a forked child it continues to record, into a file of the child, until the child stops it or
    exits. The steps, the capture of the tool and `on_trace_ready` belong to the parent.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._recording = CycleRecording(options)
        self._cycle = Cycle(options, self._recording, self._ready)
        self._machine = Machine(options.schedule, self._cycle)
        self._numbered = False  # whether steps are ranges
        self._step: stack.Entry | None = None
        self._stopping = False

    def start(self) -> None:
        """Start with step 0; raises RuntimeError if a session is running in this process."""
        self._machine.refuse_within("begin")
        parents = inherited_session()
        if parents is not None:
            parents.stop()
        claim_process(self)
        self._recording.begin_session()
        self._numbered = self._options.schedule is not None
        try:
            self._machine.begin()
        except BaseException:
            self._abandon(self._cycle.stop)
            raise
        self._begin_step()

    def stop(self) -> None:
        """Stop the session, and save the recording. Does nothing if the session is not running.

        Between two steps, for example in ``on_trace_ready``, it stops when the next step has begun.
        """
        if inherited_session() is self:
            self._abandon(self._cycle.leave)
        elif self._machine.changing:
            self._stopping = own_session() is self
        elif own_session() is self:
            call_all(self._close_step, self._machine.end, self._ended)

    def step(self) -> None:
        """Proceed to the next step of the schedule.

        Raises RuntimeError if the session is not running.
        """
        if inherited_session() is self:
            return
        self._machine.refuse_within("step")
        self._close_step()
        self._recording.end_step()
        self._numbered = True
        try:
            self._machine.step()
        finally:
            self._begin_step()

    def pause(self) -> None:
        """Suspend recording and emitting until `resume`; steps still count."""
        if current_session() is self:
            self._cycle.mute(True)

    def resume(self) -> None:
        """Resume after `pause`."""
        self._cycle.mute(False)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Start or stop recording kinds of activity: "CPU", "CUDA", or PyTorch's `ProfilerActivity`.

        CPU are the ranges and everything else on the host. CUDA is the capture of the tool, which
        nsys ends and begins again with ``--capture-range-end=repeat``. Raises ValueError for another
        kind.
        """
        names = {str(getattr(activity, "name", activity)).upper() for activity in activities}
        if unknown := sorted(names - {CPU, CUDA}):
            raise ValueError(f"profile: activities are {CPU!r} and {CUDA!r}, not {unknown[0]!r}")
        if current_session() is self:
            if CPU in names:
                self._cycle.mute(not enable)
            if CUDA in names:
                self._cycle.capture(enable)

    @property
    def is_profiling(self) -> bool:
        """Whether this step is recorded and the session is not paused."""
        return current_session() is self and self._cycle.recording

    @property
    def current_action(self) -> Action:
        """The action of the schedule for this step."""
        return self._machine.action

    @property
    def step_num(self) -> int:
        """The number of the step, from 0."""
        return self._machine.step_number

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def __call__(self, function: F) -> F:
        """Decorate a function: each call is a session, unless a session is running."""
        return decorate(self, function)

    @property
    def report(self) -> Report:
        """The last recording as a report, as `bridge.load` returns.

        After the session it is that of the last cycle with a whole step or any op. Raises
        `ReportError` if there is none.
        """
        return self._recording.report()

    def by(self, view: str, **options: Unpack[TableOptions]) -> DataFrame:
        """Return a table of the last recording, as `Report.by` does."""
        return self.report.by(view, **options)

    def _repr_html_(self) -> str:
        """Return the last recording as notebooks show a report, or why there is none."""
        from bridge.importers.errors import NothingRecorded
        from bridge.render.notebook import line_as_html  # loads pandas only on demand

        try:
            return self.report._repr_html_()
        except NothingRecorded as reason:
            return line_as_html(str(reason))

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the last recording as a timeline, ``.json`` or ``.json.gz``; replaces the file."""
        self._recording.dump(path)

    def dump(self, path: str | Path | None = None, *, finished: bool = True) -> None:
        """Write the last recording, by default to the session's file; replaces the file.

        Writes a trace for ``.json`` and ``.json.gz``, a recording for ``.jsonl``. Stops the session
        unless ``finished`` is False. Raises ValueError without a file, `ReportError` if nothing was
        recorded.
        """
        if finished:
            self.stop()
        self._recording.dump(path)

    def add_metadata(self, key: str, value: Any) -> None:
        """Add metadata to recording and trace; raises TypeError for values that are not JSON."""
        self._recording.about({key: value})

    def clear(self) -> None:
        """Delete the recording; open ranges continue in the new one."""
        self._cycle.clear()

    def _ready(self) -> None:
        if self._options.on_trace_ready is not None:
            self._options.on_trace_ready(self)

    def _begin_step(self) -> None:
        """Open the range of a step; stop the session if that was requested between the steps."""
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
        """Stop without `on_trace_ready`: in a forked child, and if starting failed."""
        call_all(self._close_step, end_cycle, self._machine.abandon, self._ended)

    def _ended(self) -> None:
        self._stopping = False
        if self._cycle.on:  # an interrupt came during a transition
            self._cycle.stop()
        self._cycle.mute(False)
        self._recording.end_session()
        release_process(self)


@overload
def profile(function: F, /) -> F: ...


@overload
def profile(
    *,
    schedule: Callable[[int], Any] | None = None,
    on_trace_ready: Callable[[Session], Any] | None = None,
    level: int = 1,
    ops: bool = False,
    record_shapes: bool = False,
    profile_memory: bool = False,
    sample_rate: int = 0,
    with_flops: bool = False,
    with_modules: bool = True,
    api_calls: bool = False,
    with_stack: bool | int = False,
    acc_events: bool = False,
    path: str | Path | None = None,
    dump_period: float | None = None,
    capture: str | None = "auto",
    device: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Session: ...


def profile(function: Any = None, /, **options: Any) -> Any:
    """Return a session; `@profile` on a function makes each call a session.

    ``schedule`` selects the recorded steps (default: all). ``on_trace_ready`` is called with the
    session after each recorded cycle. ``level`` 0 records the program's own annotations, 1 also
    PyTorch's modules (but with ``with_modules=False``), optimizer steps and waits for data, 2 also its
    ops, calls of its Python API and garbage collections. ``ops`` records every op of PyTorch,
    ``record_shapes`` and ``with_flops`` also details of each, ``with_stack`` the frames of the program that
    call it (8, or another number), ``api_calls`` the calls of PyTorch's Python API.
    ``profile_memory`` samples memory at each step, ``sample_rate`` also at every so many ops.
    ``path`` is the file (``.jsonl``, ``.json``, ``.json.gz``) for each cycle; a ``.jsonl`` file
    grows while the session runs, at least every ``dump_period`` seconds. ``acc_events`` puts all
    cycles into one recording. ``device="cupti"`` also records the GPU's work by CUPTI in this process, so that tables
    have GPU times and ``path`` may be a report (``.sqlite``); ``"auto"`` does so where it is possible. ``capture``
    selects how the capture of a tool is controlled: see docs/sessions.md. Raises TypeError or ValueError for invalid
    values.
    """
    session = Session(checked_options(options))
    return session if function is None else session(function)


def is_profiling() -> bool:
    """Return whether a session is recording in this process."""
    session = current_session()
    return session is not None and session.is_profiling


# -- The running session of this process


POOLS = "concurrent.futures.thread"  # imported early, because it cannot be imported at exit

_runs: dict[int, list[Session]] = {}  # by process id; in a forked child also that of its parent


def claim_process(session: Session) -> None:
    """Register the running session; raises SessionRunsError if there is one."""
    sessions = [session]
    if _runs.setdefault(os.getpid(), sessions) is not sessions:
        raise SessionRunsError("a session is already running in this process; stop it first")
    _stop_at_exit()


def release_process(session: Session) -> None:
    for owner in [pid for pid, run in list(_runs.items()) if session in run]:
        _runs.pop(owner, None)


def own_session() -> Session | None:
    """Return the session that was started in this process."""
    return next(iter(_runs.get(os.getpid(), ())), None)


def inherited_session() -> Session | None:
    """Return the session that ran in the parent when this process was forked."""
    pid = os.getpid()
    return next((run[0] for owner, run in list(_runs.items()) if owner != pid), None)


def current_session() -> Session | None:
    """Return the session that this process records for, if any."""
    return own_session() or inherited_session()


class _Exit:
    """Whether `_stop` is registered to run at exit."""

    expected = False


def _stop_at_exit() -> None:
    # Registered once: each unregistering would leave a hole in a list.
    if not _Exit.expected:
        _Exit.expected = True
        import_module(POOLS)
        atexit.register(_stop)


def _stop() -> None:
    session = current_session()
    if session is not None:
        # Thread pools refuse work at exit, but a session needs them to write its trace.
        setattr(import_module(POOLS), "_shutdown", False)  # noqa: B010 (no public name)
        session.stop()
