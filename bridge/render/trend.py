"""A trend: a table for people, JSON, CSV, and a page with a line per op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.compare.gates import ITERATION, TOTAL, Verdict
from bridge.analyze.compare.trend import LABELS, NO_CHANGE, RunTimes, Trend
from bridge.analyze.core.groups import texts
from bridge.analyze.core.table import Table
from bridge.importers.records import record
from bridge.knowledge.package import VERSION
from bridge.render import document, table_columns, units
from bridge.render import table as tables
from bridge.render.diff import ARROW, interval_text, p_text, verdict_lines
from bridge.render.page import still_page

FORMAT = "bridge.trend/1"
COLUMNS = "trend"  # the table whose headings are used
TEST = (
    "interval: 95 % confidence for the change, from the runs on both sides (Welch's t-test);"
    " p: corrected for all places; a change is told if p, corrected for the rows too, is at most 0.05"
)
NOTHING = {
    "op": "no op has time in any run: --by kernel needs no ops",
    "kernel": "nothing ran on a GPU in any run",
    "step": "no run has two steps that follow each other",
}
WHOLES = {ITERATION: "Iteration, median", TOTAL: "All work, median"}


@record
class TrendView:
    """The figures of a trend that are shown: rows of it, the number of further rows, and the verdicts of gates."""

    trend: Trend
    rows: Table
    left_out: int = 0
    verdicts: Sequence[Verdict] = ()


def for_terminal(view: TrendView, look: tables.Look) -> str:
    """Return the lines on the runs as wholes, the table, what was left out, and the verdicts."""
    trend = view.trend
    table = tables.for_terminal(COLUMNS, text_columns(trend, view.rows), look)
    more = [f"… and {units.count(view.left_out)} more (--top all)"] if view.left_out else []
    nothing = [] if len(trend.rows) else [NOTHING[trend.by]]
    below = [*more, *nothing, *_left_out_lines(trend.left_out), trend.untested or TEST]
    above = "".join(f"{line}\n" for line in [_runs_line(trend), *_overall_lines(trend.overall)])
    return (
        f"{above}\n{table}" + "".join(f"{line}\n" for line in below) + verdict_lines(view.verdicts)
    )


def as_json(view: TrendView) -> str:
    """Return a JSON object in the format bridge.trend/1, a line per row; a run is its place in ``runs``, from 0."""
    trend = view.trend
    label = LABELS[trend.by]
    runs = Table(
        {
            "label": texts(run.label for run in trend.runs),
            "source": _lists(run.source for run in trend.runs),
            "steps": np.array([run.steps for run in trend.runs], np.int64),
            **{
                f"{name}_ns": np.array([run.whole[n] for run in trend.runs])
                for n, name in enumerate(WHOLES)
            },
        }
    )
    head: dict[str, Any] = {
        "format": FORMAT,
        "by": trend.by,
        "per_step": trend.per_step,
        "untested": trend.untested,
        "left_out": [
            {"label": run.label, "source": list(run.source), "evidence": run.evidence}
            for run in trend.left_out
        ],
        "gates": [asdict(verdict) for verdict in view.verdicts],
    }
    series = Table({label: trend.names, "medians_ns": _lists(trend.medians.tolist())})
    return document.with_rows(
        head, view.rows, {"runs": runs, "overall": trend.overall, "series": series}
    )


def as_csv(view: TrendView) -> str:
    """Return the rows as comma-separated values."""
    return document.as_csv(view.rows)


def text_columns(trend: Trend, rows: Table) -> Table:
    """Return the displayed columns as texts."""
    label = LABELS[trend.by]
    bounds = zip(rows["ratio_low"].tolist(), rows["ratio_high"].tolist(), strict=True)
    places = zip(rows["earliest"].tolist(), rows["latest"].tolist(), strict=True)
    return Table(
        {
            label: rows[label],
            **{
                name: texts(map(units.time, rows[name].tolist()))
                for name in ("first_ns", "last_ns")
            },
            "change": texts(map(_change, rows["ratio"].tolist())),
            "interval": texts(_interval(*pair) for pair in bounds),
            "run": rows["run"],
            "place": texts(_place(trend.runs, *pair) for pair in places),
            "p": texts(map(table_columns.blank_if_missing(p_text), rows["p"].tolist())),
            "state": texts("" if state == NO_CHANGE else state for state in rows["state"].tolist()),
        }
    )


def _runs_line(trend: Trend) -> str:
    """Return which runs are compared, and what their times are."""
    if not trend.runs:
        return "no runs that compare"
    first, last = trend.runs[0], trend.runs[-1]
    named = first.label if first is last else f"{first.label} … {last.label}"
    times = (
        "median times per step" if trend.per_step else "times of whole runs, as they have no steps"
    )
    counted = "1 run" if first is last else f"{len(trend.runs)} runs"
    return tables.clean(f"{counted}, {named}: {times}")


def _overall_lines(overall: Table) -> list[str]:
    """Return a line per change of the iteration time and of the time of all work."""
    return [tables.clean(_overall_line(row)) for row in overall.records()]


def _overall_line(row: Mapping[str, Any]) -> str:
    times = ARROW.join(units.time(row[name]) for name in ("first_ns", "last_ns"))
    return f"{WHOLES[row['time']]} {times}{f'; {_told(row)}' if row['run'] else ''}"


def _told(row: Mapping[str, Any]) -> str:
    """Return a change as a text: ``slower at r12: +10.0 %, 95 % interval +9.1 … +10.9 %``."""
    if row["ratio"] == table_columns.MISSING:
        return f"{row['state']} at {row['run']}"
    interval = _interval(row["ratio_low"], row["ratio_high"])
    return f"{row['state']} at {row['run']}: {_change(row['ratio'])}, 95 % interval {interval}"


def _left_out_lines(runs: Sequence[RunTimes]) -> list[str]:
    """Return the line on the runs that are not compared, none without such."""
    if not runs:
        return []
    named = ", ".join(f"{run.label} ({run.evidence})" for run in runs)
    return [tables.clean(f"left out, as other events tell of them: {named}")]


def _change(ratio: float) -> str:
    return "" if ratio == table_columns.MISSING else table_columns.change(ratio - 1)


def _interval(low: float, high: float) -> str:
    return "" if low == table_columns.MISSING else interval_text(low, high)


def _place(runs: Sequence[RunTimes], first: int, last: int) -> str:
    """Return the runs at which a change may be, '' where it can be at one alone."""
    return "" if first == last else f"{runs[first].label} … {runs[last].label}"


def _lists(values: Iterable[Sequence[Any]]) -> NDArray[np.object_]:
    """Return lists as a column of a table."""
    listed = [list(value) for value in values]
    column = np.empty(len(listed), object)
    column[:] = listed
    return column


# -- The page


WIDTH, HEIGHT, EDGE = 260, 44, 4  # of a line, in pixels
LEAST = 0.1  # share of the longest time that the height stands for at least: noise looks small


def page(view: TrendView) -> str:
    """Return a page with a line per op, the largest change first."""
    trend = view.trend
    label = LABELS[trend.by]
    lines = [_runs_line(trend), *_left_out_lines(trend.left_out), trend.untested or TEST]
    about = "".join(f'<p class="about">{escape(line)}</p>' for line in lines)
    whole = [
        (
            WHOLES[name],
            [run.whole[place] for run in trend.runs],
            trend.overall[trend.overall["time"] == name],
        )
        for place, name in enumerate(WHOLES)
        if name in trend.overall["time"].tolist()
    ]
    place = {name: row for row, name in enumerate(trend.names.tolist())}
    own = [
        (name, trend.medians[place[name]].tolist(), view.rows[view.rows[label] == name])
        for name in dict.fromkeys(view.rows[label].tolist())
    ]
    names = [run.label for run in trend.runs]
    panels = [
        _panel(title, rows, names)
        for title, rows in (("Runs as wholes", whole), (f"By {label}", own))
        if rows
    ]
    return still_page("Trend", f"nsight-bridge {VERSION}", about + "".join(panels))


def _panel(
    title: str, sequences: Sequence[tuple[str, list[float], Table]], runs: Sequence[str]
) -> str:
    ends = f"{runs[0]} … {runs[-1]}"
    head = "".join(f"<th>{escape(text)}</th>" for text in ("", ends, "first", "last", "changes"))
    rows = "".join(
        _row(name, values, changes.records(), runs) for name, values, changes in sequences
    )
    table = f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<section class="panel"><h2>{escape(title)}</h2>{table}</section>'


def _row(name: str, values: list[float], changes: list[dict[str, Any]], runs: Sequence[str]) -> str:
    told = sorted((change for change in changes if change["run"]), key=lambda change: change["at"])
    cells = (
        f"<td>{_line(name, values, told, runs)}</td>",
        *(f'<td class="number">{escape(units.time(values[end]))}</td>' for end in (0, -1)),
        f"<td>{'<br>'.join(escape(tables.clean(_told(change))) for change in told)}</td>",
    )
    return (
        f'<tr><th scope="row" class="name">{escape(tables.clean(name))}</th>{"".join(cells)}</tr>'
    )


def _line(
    name: str, values: list[float], changes: list[dict[str, Any]], runs: Sequence[str]
) -> str:
    """Return the picture of a sequence: its runs, the levels before and after each change, and where it is."""
    low, high = min(values), max(values)
    middle = (low + high) / 2
    step = (WIDTH - 2 * EDGE) / max(1, len(values) - 1)
    scale = (HEIGHT - 2 * EDGE) / max(high - low, LEAST * high, 1)

    def x(run: float) -> str:
        return f"{EDGE + run * step:.1f}"

    def y(ns: float) -> str:
        return f"{HEIGHT / 2 - (ns - middle) * scale:.1f}"

    cuts = [0, *(change["at"] for change in changes), len(values)]
    levels = [change["before_ns"] for change in changes] + [
        change["after_ns"] for change in changes[-1:]
    ]
    drawn = [
        f'<line class="level" x1="{x(first)}" y1="{y(ns)}" x2="{x(last - 1)}" y2="{y(ns)}"/>'
        for ns, first, last in zip(levels, cuts, cuts[1:], strict=False)
    ]
    drawn += [
        f'<line class="change" x1="{x(at - 0.5)}" y1="0" x2="{x(at - 0.5)}" y2="{HEIGHT}"/>'
        for at in cuts[1:-1]
    ]
    points = " ".join(f"{x(run)},{y(ns)}" for run, ns in enumerate(values))
    drawn += [
        f'<circle cx="{x(run)}" cy="{y(ns)}" r="2"><title>{escape(f"{of}: {units.time(ns)}")}</title></circle>'
        for run, (of, ns) in enumerate(zip(runs, values, strict=True))
    ]
    box = f'<svg class="line" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(tables.clean(name))}">'
    return f'{box}<polyline points="{points}"/>{"".join(drawn)}</svg>'
