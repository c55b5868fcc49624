"""Read a file of a profiler, of any known format, into a `Capture` of frames: see `load`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from importers.capture import Capture, Facts, concat
from importers.column_files import is_columnar
from importers.errors import NoSuchReport, NotAReport, ReportError
from importers.formats import read
from importers.nsys.schema import Details

__all__ = ["Capture", "Facts", "ReportError", "load"]


def load(
    *paths: str | Path, details: Details = True, sidecar: Sequence[str | Path] = ()
) -> Capture:
    """Read one report, or several as one `Capture`.

    Formats: exports of Nsight Systems of any version as SQLite, Arrow or Parquet, of which a folder of
    tables is one report; ``.nsys-rep`` and ``.qdrep`` files where nsys is installed; reports of
    Nsight Compute (``.ncu-rep``, and the output of ``ncu --csv``); traces of PyTorch's profiler
    (``.json``, ``.json.gz``); snapshots of torch.cuda.memory (``.pickle``, ``.json``); recordings of
    sessions without a profiler (``.jsonl``).

    ``details=False`` omits the columns and frames that docs/frames.md marks as details, which
    describe single rows only; it takes half the time. A collection of names reads only these
    details: ``details={"mangled", "waits"}``. ``sidecar`` names recordings (files or folders) with
    the details of annotated calls; by default those beside the report of the profiler are used.

    Raises `ReportError`, whose message is one line for the user.
    """
    if not paths:
        raise ReportError("no report given")
    _check_distinct([Path(path) for path in paths])
    # Checked first, even if no detail that they hold is read.
    recordings = [_existing(Path(path)) for path in sidecar]
    captures = [_with_path(path, _load(Path(path), details, recordings)) for path in paths]
    _check_same_profiler(captures)
    return concat(captures)


def _with_path(path: str | Path, capture: Capture) -> Capture:
    """Return the capture with the path of its file in its facts."""
    return replace(capture, facts=tuple(replace(f, path=str(path)) for f in capture.facts))


def _load(path: Path, details: Details, sidecar: Sequence[Path]) -> Capture:
    try:
        _check_readable(path)
        return read(path, details, sidecar)
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error


def _existing(path: Path) -> Path:
    try:
        path.stat()
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror}") from error
    return path


def _check_distinct(paths: list[Path]) -> None:
    seen: set[str] = set()
    for path in paths:
        real = os.path.realpath(path)  # Path.resolve raises for a link to itself
        if real in seen:
            raise ReportError(f"{path.name}: given twice; it would be counted twice")
        seen.add(real)


def _check_same_profiler(captures: Sequence[Capture]) -> None:
    """Raise ReportError for reports of two profilers: kernels would count twice."""
    without_timeline = [r for r in captures if not r.facts[0].timeline]
    if 0 < len(without_timeline) < len(captures):
        name = without_timeline[0].source[0]
        raise ReportError(
            f"{name}: Nsight Compute's, the other reports are not; give it with --ncu"
        )


def _check_readable(path: Path) -> None:
    if path.is_dir():
        if is_columnar(path):
            return
        raise NotAReport(f"{path}: a folder; name the report inside it")
    if not path.exists():
        raise NoSuchReport(path)
    if not path.is_file():
        raise NotAReport(f"{path}: a pipe or a device; write the report to a file first")
    if not path.stat().st_size:
        raise NotAReport(f"{path.name}: empty; did the profiler finish writing it?")
