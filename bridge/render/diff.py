"""A comparison of two reports as text: a table for people, Markdown for a pull request, JSON, CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bridge.analyze.compare import Comparison
from bridge.analyze.compare.gates import Verdict
from bridge.render import document, headings, units
from bridge.render import table as tables

FORMAT = "bridge.diff/1"
SHOWN = "diff"  # its headings
ARROW = " → "
PASSED, FAILED = ("passed", "FAILED")
COUNTED = ("calls", "activities")


@dataclass(frozen=True)
class Shown:
    """What is shown of two reports: their names, some ``rows`` of a comparison of which there are more, the verdicts.

    Without a comparison the verdicts are of the report after alone. ``left_out`` are rows that people are spared.
    """

    before: Sequence[str]
    after: Sequence[str]
    comparison: Comparison | None
    rows: pd.DataFrame
    verdicts: Sequence[Verdict]
    left_out: int = 0


def for_terminal(shown: Shown, look: tables.Look) -> str:
    """Return the table as it fits the terminal, the accounting under it, and what the gates found."""
    if shown.comparison is None:
        return _judged(shown.verdicts)
    table = _worded(shown.comparison, shown.rows, look.unit)
    more = f"… and {shown.left_out} more rows: --format csv for all\n" if shown.left_out else ""
    below = more + "".join(f"{line}\n" for line in lines(shown.comparison))
    return f"{tables.for_terminal(SHOWN, table, look)}\n{below}{_judged(shown.verdicts)}"


def as_markdown(shown: Shown, unit: str | None = None) -> str:
    """Return GitHub's Markdown: what failed first, then the table and its accounting."""
    names = ARROW.join(", ".join(side) for side in (shown.before, shown.after) if side)
    marks = {True: ":white_check_mark:", False: ":x:"}
    found = sorted(shown.verdicts, key=lambda v: v.passed)
    verdicts = "".join(f"- {marks[v.passed]} {tables.escaped(_line(v))}\n" for v in found)
    text = f"### {tables.escaped(names)}\n\n{verdicts}" + ("\n" if verdicts else "")
    if shown.comparison is None:
        return text
    table = tables.as_markdown(SHOWN, _worded(shown.comparison, shown.rows, unit))
    return f"{text}{table}\n" + "  \n".join(lines(shown.comparison)) + "\n"


def as_json(shown: Shown) -> str:
    """Return one JSON object in the format bridge.diff/1, a line per row; integers stay integers."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "before": list(shown.before),
        "after": list(shown.after),
    }
    found = shown.comparison
    if found is not None:
        steps = dict(zip(("before", "after"), found.steps, strict=True))
        head |= {
            "by": found.by,
            "times": "cpu" if found.host else "gpu",
            "totals": {**found.whole, "rows_diff_ns": found.rows_diff_ns, "outside": found.outside},
            "steps": {**steps, "untested": found.untested},
        }
    fields = ("gate", "subject", "passed", "line", "note")
    head["gates"] = [{name: getattr(v, name) for name in fields} for v in shown.verdicts]
    return document.with_rows(head, shown.rows)


def as_csv(shown: Shown) -> str:
    """Return the rows as comma-separated values."""
    return document.as_csv(shown.rows)


def lines(found: Comparison) -> list[str]:
    """Return the accounting, whose parts add up, and a word on steps."""
    whole = found.whole
    parts = {"rows" if found.by != "op" else "ops": found.rows_diff_ns}
    parts |= {name.replace("_", " "): pair["diff_ns"] for name, pair in found.outside.items()}
    said = ", ".join(f"{name} {_signed(ns)}" for name, ns in parts.items())
    ratio = whole["after_ns"] / whole["before_ns"] if whole["before_ns"] else headings.MISSING
    percent = f" ({_change(ratio)})" if ratio != headings.MISSING else ""
    kind = "CPU time" if found.host else "activity time"
    times = ARROW.join(units.time(whole[side]) for side in ("before_ns", "after_ns"))
    return [
        f"{kind} {times}: {_signed(whole['diff_ns'])}{percent}; {said}",
        found.untested or _steps(found),
    ]


def _steps(found: Comparison) -> str:
    before, after = found.steps
    return f"p and state compare the time per step: {before} steps before, {after} after"


def _worded(found: Comparison, rows: pd.DataFrame, unit: str | None) -> pd.DataFrame:
    """Return the columns that people see, as texts; a renamed kernel as ``old -> new``."""
    table: dict[str, Any] = {name: rows[name] for name in found.labels if name != "kernel_before"}
    if "kernel_before" in rows:
        table["kernel"] = _renamed(rows)
    counted = "calls" if "calls_before" in rows else "activities"
    table |= {name: _pairs(rows, name) if name == counted else "" for name in COUNTED}
    time = units.time if unit is None else lambda ns: units.time_in(unit, ns)
    table |= {name: _texts(rows[name], time) for name in ("before_ns", "after_ns")}
    table["diff_ns"] = _texts(rows["diff_ns"], lambda ns: _signed(ns, unit))
    table["change"] = _texts(rows["ratio"], headings.known(_change))
    table["step_ratio"] = _texts(rows["step_ratio"], headings.known(_change))
    table["share"] = _texts(rows["share"], lambda share: f"{100 * share:.1f} %")
    table["p"] = _texts(rows["p"], headings.known(_p))
    table["state"] = rows["state"]
    return pd.DataFrame(table)


def _renamed(rows: pd.DataFrame) -> list[str]:
    pairs = zip(rows["kernel_before"].tolist(), rows["kernel"].tolist(), strict=True)
    return [f"{old} -> {new}" if old else str(new) for old, new in pairs]


def _pairs(rows: pd.DataFrame, count: str) -> list[str]:
    pairs = zip(rows[f"{count}_before"].tolist(), rows[f"{count}_after"].tolist(), strict=True)
    return [units.count(a) if a == b else ARROW.join(map(units.count, (a, b))) for a, b in pairs]


def _texts(column: pd.Series, text: Any) -> list[str]:
    return [text(value) for value in column.tolist()]


def _signed(ns: int, unit: str | None = None) -> str:
    text = units.time(ns) if unit is None else units.time_in(unit, ns)
    return f"+{text}" if ns > 0 else text


def _change(ratio: float) -> str:
    return headings.change(ratio - 1)


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004 - as papers do


def _judged(verdicts: Sequence[Verdict]) -> str:
    return "".join(f"{PASSED if v.passed else FAILED}: {_line(v)}\n" for v in verdicts)


def _line(verdict: Verdict) -> str:
    """Return a verdict on one line, whatever an op is called."""
    line = f"{verdict.line} ({verdict.note})" if verdict.note else verdict.line
    return tables.clean(line)
