"""Files to look at: the timeline of a report, whole or a part, in the manner of one profiler or another; and its page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bridge.analyze import dialects
from bridge.analyze.advice import advise
from bridge.analyze.dialects.torch import torch
from bridge.analyze.metrics import no_timeline
from bridge.analyze.overview import overview
from bridge.analyze.overview.comparison import comparison
from bridge.analyze.quality import quality as quality_of
from bridge.analyze.timeline import WHOLE, Selection, Timeline, lasting, of_ranks
from bridge.join.attributed import Attributed
from bridge.output import check, compressed, whole, write
from bridge.package import VERSION
from bridge.render import advice, quality, traces, units
from bridge.render.page import page as html

PID_BITS = 0xFFFFFF
SIDES = 2  # of a page, at most


def trace(
    joined: Attributed,
    path: str | Path,
    *,
    dialect: str = dialects.NATIVE,
    selection: Selection = WHOLE,
    force: bool = False,
) -> Timeline:
    """Write one timeline of ops, API calls and device work: ``.json``, ``.json.gz`` or ``.pftrace``.

    ``dialect`` "torch" writes what PyTorch's profiler would have; ``selection`` draws a part. Return what
    was drawn. Raises ValueError for another suffix or dialect, for windows without anything and ranks that are not there, `OutputError` if the file is there and
    not to be replaced, or cannot be written.
    """
    output = Path(path)
    no_timeline.refuse(joined.report, "trace")
    traces.check(output.name, dialect)
    drawn = dialects.drawn(joined, dialect, selection)
    _check_not_empty(drawn, joined, selection)
    _write(output, traces.printed(drawn, joined.report, output.name, dialect), force=force)
    return drawn


def tensorboard(
    joined: Attributed, folder: str | Path, *, selection: Selection = WHOLE, force: bool = False
) -> list[Path]:
    """Write a trace per process, as TensorBoard's PyTorch plugin finds them in a folder; return the files.

    Raises as `trace` does, before anything is written.
    """
    no_timeline.refuse(joined.report, "trace")
    whole = of_ranks(joined, torch(joined, together=False), selection)
    drawn = selection.of(whole)
    _check_not_empty(drawn, joined, selection)
    processes = sorted({(t.group.report, t.group.process) for t in drawn.tracks})
    files = [Path(folder) / _worker_file(joined, *process) for process in processes]
    for output in files:
        check(output, force=force)
    for output, process in zip(files, processes, strict=True):
        own = drawn.of_process(*process)
        pieces = traces.printed(
            own, joined.report, output.name, dialects.TORCH, for_tensorboard=True
        )
        _write(output, pieces, force=force)
    return files


def _check_not_empty(drawn: Timeline, joined: Attributed, selection: Selection) -> None:
    """Raise ValueError where windows leave nothing."""
    if selection.windows and not any(len(s) for s in drawn.every()):
        lasts = lasting(joined)
        raise ValueError(f"nothing happens in that window; the report lasts {units.time(lasts)}")


def page(reports: Sequence[Attributed], path: str | Path, *, force: bool = False) -> None:
    """Write one page of a report, or of two side by side: a file of HTML that loads nothing.

    Raises ValueError for more than two, `OutputError` as `trace` does.
    """
    if not 0 < len(reports) <= SIDES:
        raise ValueError(f"{len(reports)} reports: a page shows one, or two side by side")
    output = Path(path)
    for one in reports:
        no_timeline.refuse(one.report, "page")
    shown = [
        {
            **overview(one),
            "advice": advice.for_page(advise(one)),
            "quality": quality.for_page(quality_of(one)),
        }
        for one in reports
    ]
    both = comparison(*shown) if len(shown) == SIDES else None
    title = " and ".join(", ".join(one["source"]) for one in shown) or output.stem
    write(output, html(shown, title, f"nsight-bridge {VERSION}", both), force=force)


def _worker_file(joined: Attributed, report: int, process: int) -> str:
    """Return ``worker.ns.pt.trace.json.gz`` for a process of a capture; of several each has its number."""
    facts, sources = joined.report.facts[report], joined.report.source
    nth = f"-{report + 1}" if len(sources) > 1 else ""
    worker = f"{sources[report].partition('.')[0]}{nth}_{(process >> 24) & PID_BITS}"
    return f"{worker}.{max(facts.epoch_ns, 0) + facts.span[0]}.pt.trace.json.gz"


def _write(output: Path, pieces: Iterable[bytes], *, force: bool) -> None:
    with whole(output, force=force) as draft, compressed(draft, output.suffix == ".gz") as file:
        for piece in pieces:
            file.write(piece)
