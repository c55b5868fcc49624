"""Read a file of a profiler, of any known format, into a `Capture` of frames: see `load`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bridge.importers.capture import Capture, Facts, Reader, concat
from bridge.importers.column_files import is_columnar
from bridge.importers.errors import NoSuchReport, NotAReport, ReportError
from bridge.importers.formats import MoreReaders, no_more, read
from bridge.importers.listener import SILENT, Listener
from bridge.importers.nsys.tables import EVERY, ONLY, SIDES, Details, requested_side
from bridge.importers.remote import Downloads, Location, Url, errors_name_urls, location, origin
from bridge.importers.sides import select_side

LOG = logging.getLogger("bridge.importers")

__all__ = ["EVERY", "ONLY", "SIDES", "Capture", "Facts", "Reader", "ReportError", "load"]


def load(
    *paths: str | Path | Url,
    details: Details = True,
    sidecar: Sequence[str | Path] = (),
    graph_annotations: Sequence[str | Path] = (),
    more_readers: MoreReaders = no_more,
    listener: Listener = SILENT,
) -> Capture:
    """Read one report, or several as one `Capture`.

    Formats: exports of Nsight Systems of any version as SQLite, Arrow or Parquet, of which a folder of
    tables is one report; ``.nsys-rep`` and ``.qdrep`` files where nsys is installed; reports of
    Nsight Compute (``.ncu-rep``, and the output of ``ncu --csv``); traces of PyTorch's profiler
    (``.json``, ``.json.gz``), MXNet, MegEngine, RAF, TensorFlow, TVM and other programs in that format; profiles of
    JAX and TensorFlow (``.xplane.pb``); snapshots of torch.cuda.memory (``.pickle``, ``.json``); recordings of
    sessions without a profiler (``.jsonl``). A text with a protocol, as ``s3://bucket/report.sqlite``,
    is a URL: the report is fetched into a temporary folder and deleted after it is read.

    ``details=False`` omits the columns and frames that docs/frames.md marks as details, which
    describe single rows only; it takes half the time. A collection of names reads only these
    details: ``details={"mangled", "waits"}``. Call stacks are read only if they are among the names, also
    beside all others: ``details={EVERY, "call_chains"}``. ``ONLY["host"]`` or ``ONLY["gpu"]`` among the names
    reads ranges and calls alone, or the work of GPUs alone. ``sidecar`` names recordings (files or folders) with
    the details of annotated calls; by default those beside the report of the profiler are used.
    ``graph_annotations`` names files in which PyTorch says what nodes of CUDA graphs are: annotations, Python stacks.
    ``more_readers`` returns readers of formats that are not built in. The ``listener`` hears of an
    export that nsys makes, and of one that was left beside the report.

    Raises `ReportError`, whose message is one line for the user.
    """
    if not paths:
        raise ReportError("no report given")
    places = [location(path) for path in paths]
    check_distinct(places)
    # Checked first, even if no detail that they hold is read.
    recordings = [_existing(Path(path)) for path in sidecar]
    annotation_files = [_existing(Path(path)) for path in graph_annotations]
    reader = partial(
        read, details=details, sidecar=recordings, more_readers=more_readers, listener=listener
    )
    side = requested_side(details)
    captures = [
        _load(place, str(path), reader, side) for place, path in zip(places, paths, strict=True)
    ]
    _check_same_profiler(captures)
    capture = concat(captures)
    return _annotated(capture, annotation_files, listener) if annotation_files else capture


def _annotated(capture: Capture, files: Sequence[Path], listener: Listener) -> Capture:
    from bridge.importers.graph_annotations import annotated, read_annotations

    return annotated(capture, read_annotations(files), listener)


def _load(report: Location, given: str, reader: Callable[[Path], Capture], side: str) -> Capture:
    """Read a report, which is fetched first if it is at a URL; its facts get its path as it was given."""
    if isinstance(report, Url):
        with Downloads() as downloads:
            return _load(downloads.path(report), str(report), reader, side)
    with errors_name_urls(report):
        capture = _load_file(report, reader, side)
    given = origin(report) or given
    return replace(capture, facts=tuple(replace(f, path=given) for f in capture.facts))


def _load_file(path: Path, reader: Callable[[Path], Capture], side: str) -> Capture:
    try:
        _check_readable(path)
        capture = select_side(reader(path), side)
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error
    facts = capture.facts[0]
    LOG.debug(
        "%s: product %s, schema %s; %d ranges, %d calls, %d activities; %d warnings",
        path,
        facts.product or "not said",
        facts.schema or "not said",
        len(capture.ranges),
        len(capture.launches),
        len(capture.activities),
        len(facts.warnings),
    )
    return capture


def _existing(path: Path) -> Path:
    try:
        path.stat()
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror}") from error
    return path


def check_distinct(paths: Sequence[Location]) -> None:
    """Raise ReportError for a report that is given twice."""
    seen: set[str | Url] = set()
    for path in paths:
        # Path.resolve raises for a link to itself.
        real = path if isinstance(path, Url) else os.path.realpath(path)
        if real in seen:
            name = path if isinstance(path, Url) else path.name
            raise ReportError(f"{name}: given twice; it would be counted twice")
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
