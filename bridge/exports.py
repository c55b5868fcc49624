"""Files of a report: its timeline as a trace in the format of a profiler, and the HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from bridge.analyze.checks.additions import Checks
from bridge.analyze.checks.advice import advise
from bridge.analyze.checks.quality import quality as quality_of
from bridge.analyze.checks.summary import Summary
from bridge.analyze.compare import compare
from bridge.analyze.core import no_timeline
from bridge.analyze.draw import dialects
from bridge.analyze.draw.dialects import NATIVE
from bridge.analyze.draw.dialects.torch import torch
from bridge.analyze.draw.overview import comparison, overview, states
from bridge.analyze.draw.timeline import WHOLE, Selection, Timeline, common_duration, filter_ranks
from bridge.analyze.run.ranks import Ranks
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.abbreviations import abbreviations
from bridge.knowledge.package import VERSION
from bridge.output import check, compressed, file_name, whole, write
from bridge.render import advice, quality, units
from bridge.render import summary as summary_texts
from bridge.render.chrome import RENDERERS, chrome
from bridge.render.page import page as html
from bridge.render.pftrace import pftrace

BUILT_IN = Checks()
SIDES = 2  # the maximum number of reports on a page


class TraceOptions(TypedDict, total=False):
    """The keywords of `trace`."""

    dialect: str
    selection: Selection
    force: bool
    warn: Callable[[str], object] | None


def trace(
    attributed: AttributedCapture,
    path: str | Path,
    *,
    dialect: str = dialects.NATIVE,
    selection: Selection = WHOLE,
    force: bool = False,
    warn: Callable[[str], object] | None = None,
) -> Timeline:
    """Write a timeline of ops, API calls and device work: ``.json``, ``.json.gz``, ``.pftrace``.

    ``dialect`` "torch" writes what PyTorch's profiler would have written; ``selection`` is the part
    to draw. ``warn`` gets a line before a trace is written that viewers open slowly or not at all.
    Returns the timeline that was drawn. Raises ValueError for another suffix or dialect,
    for windows without events and for unknown ranks; `OutputError` if the file exists and must not
    be replaced, or cannot be written.
    """
    output = Path(path)
    no_timeline.refuse(attributed.capture, "trace")
    check_suffix(output.name, dialect)
    timeline = dialects.draw(attributed, dialect, selection)
    _check_not_empty(timeline, attributed, selection)
    if warn is not None and (line := size_warning(timeline, output.name)):
        warn(line)
    _write(output, trace_pieces(timeline, attributed.capture, output.name, dialect), force=force)
    return timeline


def tensorboard(
    attributed: AttributedCapture,
    folder: str | Path,
    *,
    selection: Selection = WHOLE,
    force: bool = False,
) -> list[Path]:
    """Write a trace per process for TensorBoard's PyTorch plugin into a folder; return the files.

    Raises as `trace` does, before anything is written.
    """
    no_timeline.refuse(attributed.capture, "trace")
    report_timeline = filter_ranks(attributed, torch(attributed, together=False), selection)
    timeline = selection.of(report_timeline)
    _check_not_empty(timeline, attributed, selection)
    processes = sorted({(t.group.report, t.group.process) for t in timeline.tracks})
    files = [Path(folder) / _worker_file(attributed, *process) for process in processes]
    for output in files:
        check(output, force=force)
    ranks = Ranks.of(attributed.capture).distinct
    for output, process in zip(files, processes, strict=True):
        pieces = RENDERERS[dialects.TORCH](
            timeline.of_process(*process), attributed.capture, for_tensorboard=True, ranks=ranks
        )
        _write(output, pieces, force=force)
    return files


def _check_not_empty(drawn: Timeline, attributed: AttributedCapture, selection: Selection) -> None:
    """Raise ValueError if the selected windows contain no events."""
    if selection.windows and not any(len(s) for s in drawn.all_slices()):
        duration = common_duration(attributed)
        raise ValueError(f"no events in that window; the report lasts {units.time(duration)}")


def page(
    reports: Sequence[AttributedCapture],
    path: str | Path,
    *,
    checks: Checks = BUILT_IN,
    force: bool = False,
) -> None:
    """Write one HTML page of a report, or of two side by side; the file loads nothing else.

    ``checks`` are those of its advice and of the quality of the capture. Raises ValueError for more
    than two reports, `OutputError` as `trace` does.
    """
    if not 0 < len(reports) <= SIDES:
        raise ValueError(f"{len(reports)} reports: a page shows one, or two side by side")
    output = Path(path)
    for attributed in reports:
        no_timeline.refuse(attributed.capture, "page")
    overviews = [_overview(attributed, checks) for attributed in reports]
    compared = _compared(reports, overviews) if len(reports) == SIDES else None
    title = " and ".join(", ".join(data["source"]) for data in overviews) or output.stem
    write(output, html(overviews, title, f"nsight-bridge {VERSION}", compared), force=force)


def _compared(
    reports: Sequence[AttributedCapture], overviews: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    entries = comparison(overviews[0], overviews[1])
    return {**entries, **states(entries, compare(reports[0], reports[1]))}


def _overview(attributed: AttributedCapture, checks: Checks) -> dict[str, Any]:
    advised = advise(attributed, checks.rules)
    summary = Summary.of(attributed, advised)
    shown = overview(attributed, summary)
    return {
        **shown,
        "short_names": abbreviations(shown["names"]),
        "summary": summary_texts.for_page(summary),
        "advice": advice.for_page(advised),
        "quality": quality.for_page(quality_of(attributed, checks.reasons)),
    }


def _worker_file(attributed: AttributedCapture, report: int, process: int) -> str:
    """Return ``worker.ns.pt.trace.json.gz`` for a process; several files are numbered."""
    facts, sources = attributed.capture.facts[report], attributed.capture.source
    number = f"-{report + 1}" if len(sources) > 1 else ""
    worker = f"{number}_{frames.pid(process)}"
    begin = max(facts.epoch_ns, 0) + facts.span[0]
    return file_name(sources[report].partition(".")[0], f"{worker}.{begin}.pt.trace.json.gz")


def _write(output: Path, pieces: Iterable[bytes], *, force: bool) -> None:
    with whole(output, force=force) as draft, compressed(draft, _is_compressed(output)) as file:
        for piece in pieces:
            file.write(piece)


def _is_compressed(output: Path) -> bool:
    return output.suffix in (".gz", PERFETTO_SUFFIX)  # Perfetto opens both forms of its traces


# -- Traces that are too large for viewers


MAX_SLICES = 1_000_000  # more take long to open, or do not fit into the memory of a browser


def size_warning(timeline: Timeline, name: str) -> str:
    """Return a line about a trace with very many slices: what they are and how to draw fewer; '' for others."""
    largest = timeline.largest()
    total = sum(count for _, count in largest)
    if total <= MAX_SLICES:
        return ""
    most = ", ".join(f"{role} {units.count(count)}" for role, count in largest[:LISTED_ROLES])
    return (
        f"{name}: {units.count(total)} slices ({most}), slow in viewers; to draw fewer: --step 1, --from and --to,"
        " --only gpu, --slim, or --max-events 1000000"
    )


LISTED_ROLES = 3


# -- The format of a trace, by suffix and dialect


JSON_SUFFIXES = (".json", ".json.gz")
PERFETTO_SUFFIX = ".pftrace"


def check_suffix(name: str, dialect: str = NATIVE) -> None:
    """Raise ValueError with a message for the user if no trace of the dialect has this suffix."""
    suffixes = (*JSON_SUFFIXES, PERFETTO_SUFFIX) if dialect == NATIVE else JSON_SUFFIXES
    if not name.endswith(suffixes):
        of_dialect = "" if dialect == NATIVE else f" of dialect {dialect}"
        raise ValueError(f"{name}: a trace{of_dialect} is written as {', '.join(suffixes)}")


def trace_pieces(
    timeline: Timeline, capture: Capture, name: str, dialect: str = NATIVE
) -> Iterator[bytes]:
    """Yield the pieces of a trace, in the format of the suffix and the dialect."""
    metadata = [facts.metadata for facts in capture.facts]
    if dialect != NATIVE:
        return RENDERERS[dialect](timeline, capture)
    return (pftrace if name.endswith(PERFETTO_SUFFIX) else chrome)(
        timeline, capture.source, metadata
    )
