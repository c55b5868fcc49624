"""The summary of a report: lines for people, and JSON in the format bridge.summary/1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pandas as pd

from bridge.render import device_work, document, units
from bridge.render.advice import with_figures
from bridge.render.summaries import iteration_text
from bridge.render.table import clean

if TYPE_CHECKING:
    from bridge.analyze.checks.summary import FirstAdvice, Iteration, Summary
    from bridge.analyze.run.gpu_use import GpuUse, Use

FORMAT = "bridge.summary/1"
MOST_GPUS = 8  # more are written as one line
MIN_UNATTRIBUTED = 0.1  # of the GPU time; below, a line on it would only distract
WITH_PLACE = ("host code", "synchronization")  # causes that the name of the op makes clearer

UNKNOWN = "unknown"  # no API calls were recorded


def lines(summary: Summary) -> list[str]:
    """Return the lines that a report begins with: use of GPUs, iterations, ops, advice."""
    return [
        *use_lines(summary.use),
        *_iteration_lines([one for one in summary.iterations if one.iteration_ns]),
        *_no_iteration_lines(summary),
        *_op_lines(summary),
        *_advice_lines(summary),
    ]


def headline(use: Use, ranges: int) -> list[str]:
    """Return the lines on the use of GPUs, with the command that tells more."""
    written = use_lines(use)
    if not written or (use.nothing and not device_work.has_reason(use.nothing)):
        return []
    return [*written[:-1], f"{written[-1]} → {next_command(use, ranges)}"]


def next_command(use: Use, ranges: int) -> str:
    """Return the command that helps most with this report."""
    if use.nothing:
        return "bridge doctor REPORT"
    if not ranges:
        return "bridge run --auto train.py (to record ops; this report has no NVTX ranges)"
    return "bridge report REPORT --by kernel" if use.is_busy else "bridge advise REPORT"


def use_lines(use: Use) -> list[str]:
    """Return a line per GPU with its busy time, the largest cause of idleness, and what the program says of them.

    Where next to nothing ran, the lines say so and why.
    """
    if use.nothing:
        return device_work.lines(use.nothing)
    return [*_busy_lines(use), *device_work.quoted(device_work.WARNING, use.hints)]


def _busy_lines(use: Use) -> list[str]:
    if not use.gpus:
        return []
    written = [_gpu_line(gpu) for gpu in use.gpus]
    if len(use.gpus) > MOST_GPUS:
        least, *_, most = use.by_share
        shares = (
            f"{units.percent(least.share)} ({clean(least.device)}) to {units.percent(most.share)}"
        )
        written = [f"{len(use.gpus)} GPUs: busy {shares} of their time."]
    cause = _cause_text(use)
    if cause and len(use.gpus) == 1:
        return [f"{written[0]} {cause}"]
    return [*written, cause] if cause else written


def _gpu_line(gpu: GpuUse) -> str:
    return f"{clean(gpu.device)}: busy {units.percent(gpu.share)} of {units.time(gpu.span_ns)}."


def _cause_text(use: Use) -> str:
    cause = use.main_cause
    if cause is None or cause.cause == UNKNOWN:
        return ""
    op = use.places.get(cause.cause, "") if cause.cause in WITH_PLACE else ""
    place = f" (mainly in {clean(op)})" if op else ""
    part = units.percent(cause.idle_ns / use.caused_ns)
    before = " (the gap before its first work included)" if use.caused_ns > use.idle_ns else ""
    time = units.time(cause.idle_ns)
    return (
        f"Largest cause of idleness: {cause.cause}{place}, {time}, {part} of the idle time{before}."
    )


MOST_LOOPS = 3  # more are written as one line


def _iteration_lines(iterations: Sequence[Iteration]) -> Iterator[str]:
    if len(iterations) <= MOST_LOOPS:
        for one in iterations:
            of_loop = f" of {clean(one.loop)}" if len(iterations) > 1 else ""
            yield f"Iteration{of_loop}, median: {iteration_text(one)}."
        return
    shortest, longest = (pick(iterations, key=lambda one: one.iteration_ns) for pick in (min, max))
    yield (
        f"Iterations of {len(iterations)} loops: {units.time(shortest.iteration_ns)} to"
        f" {units.time(longest.iteration_ns)}. The longest: {iteration_text(longest)}."
    )


def _no_iteration_lines(summary: Summary) -> Iterator[str]:
    if summary.no_iterations and not summary.iterations:
        yield f"No iterations: {clean(summary.no_iterations)}."


def _op_lines(summary: Summary) -> Iterator[str]:
    if summary.ops and summary.gpu_ns:
        shares = (
            f"{clean(op.op)} {units.percent(op.gpu_self_ns / summary.gpu_ns)}" for op in summary.ops
        )
        yield f"Most GPU time: {', '.join(shares)}."
        share = (
            1
            - (summary.gpu_ns if summary.attributed_ns is None else summary.attributed_ns)
            / summary.gpu_ns
        )
        if share >= MIN_UNATTRIBUTED:
            yield f"{units.percent(share)} of the GPU time is in no op. → bridge report REPORT --by kernel"


def _advice_lines(summary: Summary) -> Iterator[str]:
    if summary.use.nothing:
        yield f"→ {next_command(summary.use, summary.ranges)}"
    elif summary.advice:
        yield f"{summary.advice.title}: {_first_advice(summary.advice)}. → bridge advise REPORT"
    elif summary.use.gpus:
        found = "No bottleneck found. " if summary.is_judged else ""
        yield f"{found}→ {next_command(summary.use, summary.ranges)}"


def _first_advice(advice: FirstAdvice) -> str:
    """Return the sentence of the first advice and its remedy, with their figures."""
    texts = (advice.text, f"Remedy: {advice.remedy}")
    return ". ".join(with_figures(text, advice.figures) for text in texts if text)


def for_page(summary: Summary) -> dict[str, Any]:
    """Return the entries of the page: the lines on the use of GPUs."""
    return {"lines": use_lines(summary.use)}


def as_json(source: Sequence[str], totals: Any, summary: Summary, table: pd.DataFrame) -> str:
    """Return one JSON object with the facts, and the rows of a table."""
    values = summary.as_dict()
    head = {
        "format": FORMAT,
        "source": list(source),
        "totals": totals,
        "gpus": [{**asdict(gpu), "busy_share": gpu.share} for gpu in summary.use.gpus],
        "idle_ns": summary.use.idle_ns,
        "causes": [asdict(cause) for cause in summary.use.causes],
        **{key: values[key] for key in ("iterations", "no_iterations", "ops", "advice")},
    }
    return document.with_rows(head, table)
