"""A file becomes frames: `load` knows the formats, and nothing of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from importers.errors import NotAReport, ReportError
from importers.formats import read
from importers.nsys.table import Details
from importers.report import Facts, Report, concat

__all__ = ["Facts", "Report", "ReportError", "load"]


def load(*paths: str | Path, details: Details = True, sidecar: Sequence[str | Path] = ()) -> Report:
    """Read one report, or several as one.

    ``details=False`` takes half the time: it leaves out the columns and frames that are marked in
    docs/frames.md, which only say more of a single row; so does naming those that are needed:
    ``details={"mangled", "waits"}``.

    Takes Nsight Systems SQLite exports of any version, ``.nsys-rep``/``.qdrep`` files where
    nsys is installed, reports of Nsight Compute (``.ncu-rep``, and what ``ncu --csv`` prints), traces of PyTorch's profiler (``.json``, ``.json.gz``), snapshots of torch.cuda.memory (``.pickle``, ``.json``), and recordings of sessions
    without a profiler (``.jsonl``). The recordings beside
    a profiler's report, or those of ``sidecar`` (files or folders), give its ranges the details of
    their calls. Raises `ReportError`, whose message is one line for the user.
    """
    if not paths:
        raise ReportError("no report given")
    _apart([Path(path) for path in paths])
    given = [_there(Path(path)) for path in sidecar]  # also where no column needs them
    reports = [_from(path, _load(Path(path), details, given)) for path in paths]
    _of_a_kind(reports)
    return concat(reports)


def _from(path: str | Path, report: Report) -> Report:
    """Return a report whose facts know its file."""
    return replace(report, facts=tuple(replace(f, path=str(path)) for f in report.facts))


def _load(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    try:
        _readable(path)
        return read(path, details, sidecar)
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error


def _there(path: Path) -> Path:
    try:
        path.stat()
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror}") from error
    return path


def _apart(paths: list[Path]) -> None:
    seen: set[Path] = set()
    for path in (path.resolve() for path in paths):
        if path in seen:
            raise ReportError(f"{path.name}: given twice; it would be counted twice")
        seen.add(path)


def _of_a_kind(reports: Sequence[Report]) -> None:
    """Refuse reports of one program by two profilers, which would count its kernels twice."""
    without = [r for r in reports if not r.facts[0].timeline]
    if 0 < len(without) < len(reports):
        name = without[0].source[0]
        raise ReportError(f"{name}: of Nsight Compute, the others are not: give it with --ncu")


def _readable(path: Path) -> None:
    if path.is_dir():
        raise NotAReport(f"{path}: a folder; name the report inside it")
    if not path.exists():
        raise NotAReport(f"{path}: no such file; is the name right?")
    if not path.is_file():
        raise NotAReport(f"{path}: a pipe or a device; write the report to a file first")
    if not path.stat().st_size:
        raise NotAReport(f"{path.name}: empty; did the profiler finish writing it?")
