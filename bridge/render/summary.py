"""The summary of a report as JSON, in the format bridge.summary/1, and the lines above tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bridge.analyze.core.table import Table
from bridge.render import device_work, document, failures, first_screen

if TYPE_CHECKING:
    from bridge.analyze.checks.summary import Summary
    from bridge.analyze.run.account import Run, Span
    from bridge.analyze.run.gpu_use import Use

FORMAT = "bridge.summary/1"
IN_JSON = ("parts", "costs", "iterations", "no_iterations", "rates", "mfu", "ops", "advice")


def headline(use: Use, ranges: int) -> list[str]:
    """Return the lines above a table: what each GPU did, and the command that tells more."""
    written = first_screen.use_lines(use)
    if not written or (use.nothing and not device_work.has_reason(use.nothing)):
        return []
    return [*written[:-1], f"{written[-1]} → {first_screen.command_for(use, ranges)}"]


def for_page(summary: Summary) -> dict[str, Any]:
    """Return the entries of the page: the first screen without commands."""
    said = (line.partition("→ ")[0].rstrip() for line in first_screen.lines(summary))
    return {"lines": [*filter(None, said)]}


def _accounts(use: Use) -> dict[str, Any]:
    """Return the length of the run, and the account of each GPU; of several runs also each of them."""
    gpus = [
        {
            **asdict(gpu),
            **{name: getattr(gpu, name) for name in ("length_ns", "busy_ns", "idle_ns")},
            "busy_share": gpu.share,
        }
        for gpu in use.gpus
    ]
    found = [_run(run) for run in use.runs]
    return {
        "run": found[0] if len(found) == 1 else None,
        **({"runs": found} if len(found) > 1 else {}),
        "gpus": gpus,
    }


def _run(run: Run) -> dict[str, Any]:
    values = {
        **_span(run.whole),
        "evidence": run.evidence,
    }
    return {**values, "selected": _span(run.part)} if run.is_part else values


def _span(span: Span) -> dict[str, int]:
    return {"start_ns": span.start, "end_ns": span.end, "length_ns": span.length}


def as_json(source: Sequence[str], totals: Any, summary: Summary, table: Table) -> str:
    """Return one JSON object with the facts, and the rows of a table."""
    values = summary.as_dict()
    head = {
        "format": FORMAT,
        "source": list(source),
        "totals": totals,
        **_accounts(summary.use),
        "idle_ns": summary.use.idle_ns,
        "causes": [asdict(cause) for cause in summary.use.causes],
        "failures": failures.as_objects(summary.failures),
        **{key: values[key] for key in IN_JSON},
    }
    beside = {"ranks": Table.of_records(summary.ranks)} if summary.ranks else {}
    return document.with_rows(head, table, beside)
