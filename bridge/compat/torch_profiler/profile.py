"""PyTorch's `profile`, with the tables of bridge and, under a tool, NVTX ranges.

PyTorch records, schedules and exports. This class adds two things: `report`, which reads the trace
that PyTorch writes, and a session of bridge from the start to the end of each recorded cycle. The
session runs only if a tool such as nsys is attached: it emits the ranges and controls the capture.
"""

from __future__ import annotations

import gzip
import inspect
import shutil
from collections.abc import Iterable
from functools import wraps
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from weakref import finalize

from torch import profiler as pytorch

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.capture.session.profile import Session
from bridge.capture.session.profile import profile as session_of
from bridge.capture.session.transitions import SessionRunsError, call_all
from bridge.frameworks.torch.blocks import BlockRanges

if TYPE_CHECKING:
    from pandas import DataFrame

    from bridge.report import Report

__all__ = ["profile"]

EVERY_NAME = ("",)  # prefixes of the blocks of `record_function` that become ranges


class Ranges:
    """The NVTX ranges of one recorded cycle: ops, modules, and all blocks of `record_function`.

    Steps are such blocks, too.
    """

    def __init__(self, profiler: pytorch.profile) -> None:
        self._blocks = BlockRanges(EVERY_NAME)
        self._session: Session = session_of(
            record_shapes=profiler.record_shapes or profiler.with_flops,
            with_flops=profiler.with_flops,
            ops=True,
            with_modules=profiler.with_modules,
            with_stack=profiler.with_stack,
            profile_memory=profiler.profile_memory,
        )

    @classmethod
    def begin(cls, profiler: pytorch.profile) -> Ranges | None:
        """Begin to emit; None without a tool, or while the program runs a session of its own."""
        emit.current()
        if state.idle:
            return None
        ranges = cls(profiler)
        try:
            ranges._session.start()
        except SessionRunsError:
            return None
        ranges._blocks.enable()
        return ranges

    def end(self) -> None:
        """Stop emitting, and end the capture of the tool."""
        call_all(self._blocks.disable, self._session.stop)

    def toggle(self, on: bool, activities: Iterable[Any]) -> None:
        """Start or stop ranges (CPU) and the capture of the tool (CUDA)."""
        self._session.toggle_collection_dynamic(on, activities)


class Trace:
    """The trace of one cycle, which PyTorch writes only once."""

    def __init__(self) -> None:
        self.report: Report | None = None
        self._file: Path | None = None
        self._stamp = (0, 0)

    def export(self, profiler: profile, path: Path) -> None:
        """Write the trace, or a copy of what was written; packed if the name ends in .gz."""
        if self._file is None:
            super(profile, profiler).export_chrome_trace(str(path))
            self._file, self._stamp = path.absolute(), _stamp(path)
            return
        file = self.written(profiler)
        packed = [_is_packed(name) for name in (file, path)]
        if packed == [False, False]:
            shutil.copyfile(file, path)
            return
        with _opened(file, "rb") as source, _opened(path, "wb") as target:
            shutil.copyfileobj(source, target)

    def written(self, profiler: profile) -> Path:
        """Return a file with the trace; raises `ReportError` if it was moved or changed."""
        if self._file is None:
            folder = mkdtemp(prefix="bridge-")
            finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.export(profiler, Path(folder, "trace.json"))
        assert self._file is not None
        if not self._file.exists() or _stamp(self._file) != self._stamp:
            from bridge.importers.errors import ReportError  # needed only here

            raise ReportError(
                f"{self._file}: moved or changed since the profiler wrote it;"
                " read prof.report before that, or bridge.load() of the file"
            )
        return self._file


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _is_packed(path: Path) -> bool:
    return path.name.endswith(".gz")


def _opened(path: Path, mode: str) -> Any:
    return gzip.open(path, mode) if _is_packed(path) else path.open(mode)


def _has_other_backend(profiler: pytorch.profile) -> bool:
    """Return whether another backend than Kineto adds to the trace, by the flag of PyTorch's version.

    The flag is `_use_cupti_monitor` in PyTorch 2.13, `_use_cuspy` in 2.15.
    """
    return any(value is True for name, value in vars(profiler).items() if name.startswith("_use_"))


class profile(pytorch.profile):  # type: ignore[misc]  # noqa: N801 - PyTorch's name
    """PyTorch's `torch.profiler.profile`, with `report` and `by`; arguments are PyTorch's.

    Under nsys the recorded steps are also NVTX ranges: steps, ops, blocks of `record_function`,
    with ``with_modules=True`` modules. Shapes and FLOPs are in the recording of the process.
    """

    __signature__ = inspect.signature(pytorch.profile)
    _ranges: Ranges | None = None
    _trace: Trace | None = None

    def prepare_trace(self) -> None:
        """Prepare to record a cycle."""
        self._trace = None
        super().prepare_trace()

    def start_trace(self) -> None:
        """Start to record a cycle."""
        super().start_trace()
        self._ranges = Ranges.begin(self)

    def stop_trace(self) -> None:
        """Stop recording the cycle."""
        ranges, self._ranges = self._ranges, None
        self._trace = Trace()
        call_all(*([] if ranges is None else [ranges.end]), super().stop_trace)

    @wraps(pytorch.profile.toggle_collection_dynamic)
    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Start or stop recording kinds of activity; without CPU there are no NVTX ranges either."""
        requested = set(activities)
        super().toggle_collection_dynamic(enable, requested)
        if self._ranges is not None:
            own = {pytorch.ProfilerActivity.CPU, pytorch.ProfilerActivity.CUDA} & requested
            self._ranges.toggle(enable, own)

    @wraps(pytorch.profile.export_chrome_trace)
    def export_chrome_trace(self, path: str, *args: Any, **options: Any) -> None:
        """Write the trace of the last cycle as PyTorch does; any number of times."""
        is_other = any((*args, *options.values())) or _has_other_backend(self)
        if self._trace is None or is_other:  # written in Python, or of another backend
            super().export_chrome_trace(path, *args, **options)
        else:
            self._trace.export(self, Path(path))

    @property
    def report(self) -> Report:
        """The last cycle as a report, as `bridge.load` returns: read from the trace of PyTorch.

        Raises AssertionError before the end of a cycle, `ReportError` if nothing was recorded.
        """
        if self._trace is None:
            raise AssertionError("Profiler must have recorded a cycle before its report is read")
        if self._trace.report is None:
            from bridge.report import load

            self._trace.report = load(self._trace.written(self))
        return self._trace.report

    def by(self, view: str, **options: Any) -> DataFrame:
        """Return a table of the last cycle, as `Report.by` does."""
        return self.report.by(view, **options)
