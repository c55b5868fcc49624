"""MegEngine's profiler as a block, a decorator, or from start to stop.

One of these profilers runs at a time. The last run of each is written once: at `dump`, when the
profiler is deleted, or at the end of the program.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from weakref import WeakSet

from bridge.annotate import mark, pop, push
from bridge.annotate import scope as annotated_scope
from bridge.capture.session.profile import Session, current_session, is_profiling
from bridge.capture.session.profile import profile as session_of
from bridge.compat.calls import innermost_ops, recorded_events, write_json
from bridge.compat.megengine.chrome_timeline import STOP_STEP, merge_timelines, timeline
from bridge.knowledge.suggestions import unknown_name

if TYPE_CHECKING:
    from bridge.frameworks.torch.functions import Functions
    from bridge.frameworks.torch.tensors import TensorWatch

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "Profiler",
    "is_profiling",
    "merge_trace_events",
    "pop_scope",
    "profile",
    "push_scope",
    "scope",
    "start_profile",
    "stop_profile",
    "stop_step",
]

LARGE_BYTES = 64 << 20  # viewers are slow with larger files
MERGED_NAME = "merge.chrome_timeline.json"
_unwritten: WeakSet[Profiler] = WeakSet()


class Profiler:
    """Records a block, a function, or from `start` to `stop`, to ``<path>/<pid>.<format>``.

    ``sample_rate`` samples the memory in use at every so many ops. ``num_tensor_watch`` 0 watches no
    tensors: no curve of alive tensors, and nothing in ``memory_flow.svg``. ``profile_device``
    records the work of a GPU by CUPTI where that is possible, with or without ``enable_cupti``.
    """

    CHROME_TIMELINE = "chrome_timeline.json"
    MEMORY_FLOW = "memory_flow.svg"
    valid_formats = (CHROME_TIMELINE, MEMORY_FLOW)
    valid_options: ClassVar = {
        "sample_rate": 0,
        "profile_device": 1,
        "num_tensor_watch": 10,
        "enable_cupti": 0,
    }

    def __init__(
        self,
        path: str = "profile",
        format: str = CHROME_TIMELINE,  # noqa: A002 - MegEngine's name
        formats: Iterable[str] | None = None,
        with_backtrace: bool = False,
        with_scopes: bool = False,
        **kwargs: Any,
    ) -> None:
        self._session: Session | None = None
        self._watch: TensorWatch | None = None
        self._functions: Functions | None = None
        self._running = self._has_unwritten = False
        if isinstance(formats, str):
            raise AssertionError(f"formats is a list of formats, not {formats!r}")  # noqa: TRY004 - MegEngine's
        self._formats = tuple(formats or (format,))
        for format_ in self._formats:
            if format_ not in self.valid_formats:
                raise AssertionError(unknown_name("format", format_, self.valid_formats))
        for name in kwargs:
            if name not in self.valid_options:
                raise TypeError(unknown_name("option", name, self.valid_options, "valid_options"))
        self._options = {
            name: int(kwargs.get(name, value)) for name, value in self.valid_options.items()
        }
        self._path, self._pid = path, os.getpid()
        self._with_scopes, self._with_backtrace = with_scopes, with_backtrace

    @property
    def path(self) -> str:
        """The file; several formats are in braces."""
        formats = self._formats
        ending = formats[0] if len(formats) == 1 else "{" + ",".join(formats) + "}"
        return self.format_path(self._path, self._pid, ending)

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return self._path

    @property
    def formats(self) -> list[str]:
        """The formats of the files."""
        return list(self._formats)

    @staticmethod
    def format_path(path: str, pid: int, format: str) -> str:  # noqa: A002 - MegEngine's name
        """Return the file of a folder, a process and a format."""
        return os.path.join(path, f"{pid}.{format}")  # noqa: PTH118 - a string

    def start(self) -> None:
        """Start to record; raises AssertionError while a profiler runs."""
        session = session_of(
            with_modules=self._with_scopes,
            record_shapes=True,
            sample_rate=max(0, self._options["sample_rate"]),
            device="auto" if self._options["profile_device"] else None,
        )
        watch = self._new_watch()
        if watch is not None and current_session() is None:
            watch.begin()
        try:
            session.start()
        except RuntimeError as problem:
            if watch is not None:
                watch.finish()
            raise AssertionError(str(problem)) from problem
        self._session, self._watch = session, watch
        if self._with_scopes:
            self._begin_functions()
        self._pid = os.getpid()
        self._running, self._has_unwritten = True, False
        _unwritten.add(self)

    def stop(self) -> None:
        """Stop to record; raises AssertionError if it does not run."""
        if not self._running or self._session is None:
            raise AssertionError("this profiler does not run")
        if self._functions is not None:
            self._functions.disable()
        self._session.stop()
        if self._watch is not None:
            self._watch.finish()
        self._running, self._has_unwritten = False, True

    def step(self) -> Self:
        """Mark the end of a step."""
        mark(STOP_STEP)
        return self

    def dump(self) -> None:
        """Write what the last run recorded, once; do nothing without a run."""
        if not self._has_unwritten or self._pid != os.getpid():
            return
        self._has_unwritten = False
        _unwritten.discard(self)
        folder = Path(self._path)
        if folder.exists() and not folder.is_dir():
            warnings.warn(f"bridge: {folder}: not a folder; nothing was written", stacklevel=2)
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name in dict.fromkeys(self._formats):
            self._write(Path(self.format_path(self._path, self._pid, name)), name)

    def write(self, path: str, name: str = CHROME_TIMELINE) -> None:
        """Write what the last run recorded to a file, in the format of this name."""
        if name not in self.valid_formats:
            raise AssertionError(unknown_name("format", name, self.valid_formats))
        self._has_unwritten = False
        self._write(Path(path), name)

    def _write(self, file: Path, format_: str) -> None:
        watch, recorded = self._watch, innermost_ops(recorded_events(self._session))
        if format_ == self.MEMORY_FLOW:
            from bridge.compat.megengine.memory_flow import write_flow  # loads pandas

            write_flow(file, self._session, [] if watch is None else watch.memory)
            return
        memory, stacks = ([], []) if watch is None else (watch.memory, watch.calls)
        write_json(file, timeline(recorded, memory, stacks))
        if file.stat().st_size > LARGE_BYTES:
            counts = Counter(call.name for call in recorded.calls).most_common(3)
            largest = ", ".join(f"{name} ({count} calls)" for name, count in counts)
            warnings.warn(
                f"bridge: {file}: over 64 MiB, slow in viewers; profile fewer steps. Most calls: {largest}",
                stacklevel=3,
            )

    def _new_watch(self) -> TensorWatch | None:
        """Return the watch of PyTorch's tensors, None without PyTorch or if nothing needs it."""
        tensors = self._options["num_tensor_watch"] > 0
        if "torch.nn" not in sys.modules or not (tensors or self._with_backtrace):
            return None
        from bridge.frameworks.torch.tensors import TensorWatch  # PyTorch is already loaded

        return TensorWatch(tensors=tensors, stacks=self._with_backtrace)

    def _begin_functions(self) -> None:
        if "torch.nn" in sys.modules:
            from bridge.frameworks.torch import functions  # PyTorch is already loaded

            self._functions = functions()
            self._functions.enable()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._running:
            self.stop()

    def __call__(self, function: F) -> F:
        """Decorate a function: each call is recorded, and the last is kept."""

        @wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def __del__(self) -> None:
        self._finish()

    def _finish(self) -> None:
        """Stop and write, whatever the state."""
        if self._running:
            self.stop()
        self.dump()


def profile(*args: Any, **kwargs: Any) -> Any:
    """Return a profiler; `@profile` above a function records each of its calls."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return Profiler()(args[0])
    return Profiler(*args, **kwargs)


def scope(name: str) -> Any:
    """Surround a block with a range of this name."""
    return annotated_scope(name)


# -- MegEngine's functions below its profiler


def start_profile(options: Mapping[str, Any] | None = None) -> None:
    """Start to record; ``options`` are those of `Profiler`.

    Raises AssertionError while a profiler runs.
    """
    profiler = Profiler(**(options or {}))
    profiler.start()
    _started.append(profiler)


def stop_profile() -> Callable[[str, str], None]:
    """Stop the profiler of `start_profile`; return a function that writes to a file, by format.

    Raises AssertionError if none runs.
    """
    if not _started:
        raise AssertionError("no profiler runs that start_profile started")
    profiler = _started.pop()
    profiler.stop()
    _unwritten.discard(profiler)
    return profiler.write


def stop_step() -> None:
    """Mark the end of a step."""
    mark(STOP_STEP)


def push_scope(name: str) -> None:
    """Open a scope on this thread, until `pop_scope`."""
    push(name, category="scope")


def pop_scope(_name: str) -> None:
    """Close the scope that `push_scope` opened last on this thread."""
    pop()


_started: list[Profiler] = []


def merge_trace_events(directory: str) -> None:
    """Write merge.chrome_timeline.json, which merges all timelines of a folder on one clock."""
    folder = Path(directory)
    files = sorted(folder.glob(f"*.{Profiler.CHROME_TIMELINE}"))
    write_json(
        folder / MERGED_NAME, merge_timelines(file for file in files if file.name != MERGED_NAME)
    )


@atexit.register
def _write_all() -> None:
    for profiler in list(_unwritten):
        profiler._finish()  # noqa: SLF001 - of this module


if __name__ == "__main__":  # as people call it who know the command of MegEngine's tools
    from runpy import run_module

    run_module("bridge.compat.megengine.tools.profiler", run_name="__main__")
