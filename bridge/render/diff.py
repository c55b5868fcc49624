"""A comparison of two reports: a table for people, Markdown for a pull request, JSON, CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from bridge.analyze.compare import Comparison
from bridge.analyze.compare.gates import Verdict
from bridge.analyze.compare.overall import Change, Overall
from bridge.analyze.compare.parts import IDLE
from bridge.analyze.core.table import Array, Table
from bridge.importers.records import record
from bridge.render import document, table_columns, units
from bridge.render import table as tables

FORMAT = "bridge.diff/1"
COLUMNS = "diff"  # the table whose headings are used
ARROW = " → "
PASSED, FAILED = ("passed", "FAILED")
COUNTED = ("calls", "activities")
MOSTLY = 0.5  # share of the time in ops of one report alone from which on the reports hardly match
TESTS = (
    "interval: 95 % confidence for the change per step (Welch's t-test); p: Mann-Whitney U test;"
    " unclear: not enough evidence for a change, nor for none"
)
WIDE = 0.2  # an interval of which decimals say nothing


@record
class DiffView:
    """The figures of a comparison that are shown.

    Attributes:
        before, after: the names of the files on both sides.
        comparison: the comparison; None if only the second report is judged.
        rows: the rows of the comparison to show.
        verdicts: the verdicts of gates and budgets.
        left_out: the number of further rows.
        overall: the reports as wholes; None if only the second report is judged.

    """

    before: Sequence[str]
    after: Sequence[str]
    comparison: Comparison | None
    rows: Table
    verdicts: Sequence[Verdict]
    left_out: int = 0
    overall: Overall | None = None


def for_terminal(view: DiffView, look: tables.Look) -> str:
    """Return the table in the width of the terminal, the accounting under it, and the verdicts."""
    if view.comparison is None:
        return verdict_lines(view.verdicts)
    table = text_columns(view.comparison, view.rows, look.unit)
    more = f"… and {units.count(view.left_out)} more (--top all)\n" if view.left_out else ""
    below = more + "".join(f"{line}\n" for line in lines(view.comparison))
    above = "".join(f"{line}\n" for line in [*overall_lines(view.overall), ""])
    above += f"{heading}\n\n" if (heading := work_text(view.comparison)) else ""
    return f"{above.lstrip()}{tables.for_terminal(COLUMNS, table, look)}\n{below}{verdict_lines(view.verdicts)}"


def as_markdown(view: DiffView, unit: str | None = None) -> str:
    """Return GitHub's Markdown: failed verdicts first, then the table and its accounting."""
    names = ARROW.join(", ".join(side) for side in (view.before, view.after) if side)
    marks = {True: ":white_check_mark:", False: ":x:"}
    values = sorted(view.verdicts, key=lambda v: v.passed)
    verdicts = "".join(f"- {marks[v.passed]} {tables.escaped(_line(v))}\n" for v in values)
    text = f"### {tables.escaped(names)}\n\n{verdicts}" + ("\n" if verdicts else "")
    if view.comparison is None:
        return text
    if above := overall_lines(view.overall):
        text += "  \n".join(above) + "\n\n"
    if heading := work_text(view.comparison):
        text += f"{heading}\n\n"
    table = tables.as_markdown(COLUMNS, text_columns(view.comparison, view.rows, unit))
    return f"{text}{table}\n" + "  \n".join(lines(view.comparison)) + "\n"


def with_rows(view: DiffView, top: int) -> DiffView:
    """Return a comparison with its first rows only."""
    rows = view.rows.head(top)
    return replace(view, rows=rows, left_out=len(view.rows) - len(rows))


def as_json(view: DiffView) -> str:
    """Return a JSON object in the format bridge.diff/1, a line per row; integers stay integers."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "before": list(view.before),
        "after": list(view.after),
    }
    comparison = view.comparison
    if comparison is not None:
        steps = dict(zip(("before", "after"), comparison.steps, strict=True))
        head |= {
            "by": comparison.by,
            "times": "cpu" if comparison.host else "gpu",
            "totals": {
                **comparison.whole,
                "rows_diff_ns": comparison.rows_diff_ns,
                "outside": comparison.outside,
            },
            "steps": {
                **steps,
                "all": list(comparison.work),
                "per_step": comparison.per_step,
                "untested": comparison.untested,
            },
            "whole_step": comparison.whole_step,
        }
    head["overall"] = view.overall.as_dict() if view.overall else None
    head["gates"] = [asdict(verdict) for verdict in view.verdicts]
    return document.with_rows(head, view.rows)


def as_csv(view: DiffView) -> str:
    """Return the rows as comma-separated values."""
    return document.as_csv(view.rows)


def overall_lines(overall: Overall | None) -> list[str]:
    """Return the lines above everything: the iteration time, GPU busy, idle time and its causes."""
    if overall is None:
        return []
    written = []
    if overall.iteration:
        written.append(f"Iteration, mean: {_change_text(overall.iteration)}")
    if overall.use:
        gpus = f" of {len(overall.use[1].gpus)} GPUs" if len(overall.use[1].gpus) > 1 else ""
        shares = (side["busy_ns"] / max(1, side["span_ns"]) for side in overall.busy)
        base = "the run" if overall.of_run else "the time from its first work to its last"
        written.append(f"GPU busy{gpus} {ARROW.join(map(units.percent, shares))} of {base}")
    if overall.idle:
        per_step = " per step" if overall.idle_per_step else ""
        written.append(f"GPU idle{per_step} {_change_text(overall.idle)}")
        written += (
            f"  {cause} {_change_text(change)}" for cause, change in overall.large_causes.items()
        )
    return written


def _change_text(change: Change) -> str:
    """Return the times, the change in per cent, and its interval: ``1.2 ms → 1.4 ms (+16.7 %), …``."""
    times = ARROW.join(units.time(round(ns)) for ns in (change.before_ns, change.after_ns))
    percent = f" ({_change(change.ratio)})" if change.ratio != table_columns.MISSING else ""
    if change.ratio_low == table_columns.MISSING:
        return f"{times}{percent}"
    bounds = interval_text(change.ratio_low, change.ratio_high)
    return f"{times}{percent}, 95 % interval {bounds}: {change.state}"


def lines(comparison: Comparison) -> list[str]:
    """Return the change of the whole, the accounting, whose parts add up, and what is not judged."""
    return [
        *_whole_step(comparison),
        _accounting(comparison),
        *_rows_outside_steps(comparison),
        *_missing_work(comparison),
        *_unmatched_ops(comparison),
        *_tests(comparison),
    ]


def _tests(comparison: Comparison) -> list[str]:
    """Return the line on what the columns of the test mean, or on why they are empty."""
    if comparison.untested:
        return [f"{comparison.untested}; without one a change is unclear"]
    return [TESTS] if (comparison.rows["p"] != table_columns.MISSING).any() else []


def _whole_step(comparison: Comparison) -> list[str]:
    """Return the line on the time of everything per step, if times are compared so."""
    whole = comparison.whole_step
    if not comparison.per_step or not whole:
        return []
    before, after = (round(whole[f"step_{side}_ns"]) for side in ("before", "after"))
    ratio, low = whole["step_ratio"], whole["step_ratio_low"]
    percent = f" ({_change(ratio)})" if ratio != table_columns.MISSING else ""
    interval = ""
    if low != table_columns.MISSING:
        bounds = interval_text(low, whole["step_ratio_high"])
        interval = f", 95 % interval {bounds}: {whole['state']}"
    times = ARROW.join(map(units.time, (before, after)))
    return [f"{_kind(comparison)} per step {times}: {_signed(after - before)}{percent}{interval}"]


def _accounting(comparison: Comparison) -> str:
    whole = comparison.whole
    parts = {"rows" if comparison.by != "op" else "ops": comparison.rows_diff_ns}
    parts |= {name.replace("_", " "): pair["diff_ns"] for name, pair in comparison.outside.items()}
    text = ", ".join(f"{name} {_signed(ns)}" for name, ns in parts.items())
    ratio = whole["after_ns"] / whole["before_ns"] if whole["before_ns"] else table_columns.MISSING
    percent = f" ({_change(ratio)})" if ratio != table_columns.MISSING else ""
    times = ARROW.join(units.time(whole[side]) for side in ("before_ns", "after_ns"))
    in_all = " in all" if comparison.per_step else ""
    return f"{_kind(comparison)}{in_all} {times}: {_signed(whole['diff_ns'])}{percent}; {text}"


def _kind(comparison: Comparison) -> str:
    if comparison.by == IDLE:
        return "GPU idle time"
    return "CPU time" if comparison.host else "activity time"


def _rows_outside_steps(comparison: Comparison) -> list[str]:
    """Return the line on rows that a table of times per step leaves out."""
    count, pair = comparison.outside_steps
    if not count:
        return []
    times = ARROW.join(units.time(pair[side]) for side in ("before_ns", "after_ns"))
    return [
        f"without time in a step, not in the table: {units.count(count)} row{'s' * (count > 1)}, in all {times}"
    ]


def _missing_work(comparison: Comparison) -> list[str]:
    """Return a line for a side without any time of the kind that is compared."""
    sides = [side for side in ("before", "after") if not comparison.whole[f"{side}_ns"]]
    if comparison.host or comparison.by == IDLE or len(sides) != 1:
        return []
    return [f"nothing ran on a GPU in the report {sides[0]}: the times there are 0"]


def _unmatched_ops(comparison: Comparison) -> list[str]:
    """Return a line where the ops of the two reports are mostly others, and one without any op."""
    if comparison.by != "op":
        return []
    if not len(comparison.rows):
        return ["no ops in either report: --by kernel compares the kernels"]
    before, after = comparison.unmatched
    if max(before, after) < MOSTLY:
        return []
    shares = f"{units.percent(before)} of the time before, {units.percent(after)} of the time after"
    return [
        f"{shares} is in ops of one report alone: were both annotated in the same way? --by kernel needs no ops"
    ]


def work_text(comparison: Comparison) -> str:
    """Return the line above a table of times per step, '' if the table shows whole times."""
    several = max(comparison.processes) > 1
    if not comparison.per_step:
        is_by_step = "step" in comparison.labels
        return "A row adds up the same step of all processes" if several and is_by_step else ""
    (before, after), samples = comparison.work, comparison.steps
    first, second = (f" of {n} processes" if several else "" for n in comparison.processes)
    steps = f"{before} steps{first} before, {after}{second} after"
    warm_up = (
        f" ({samples[0]} and {samples[1]} without warm-up)" if samples != comparison.work else ""
    )
    return f"{steps}{warm_up}: times and changes are per step, calls are totals"


def text_columns(comparison: Comparison, rows: Table, unit: str | None = None) -> Table:
    """Return the displayed columns as texts; a renamed kernel is ``old -> new``."""
    table: dict[str, Any] = {
        name: rows[name] for name in comparison.labels if name != "kernel_before"
    }
    if "kernel_before" in rows:
        table["kernel"] = _renamed(rows)
    counted = "calls" if "calls_before" in rows else "activities"
    table |= {name: _pairs(rows, name) if name == counted else "" for name in COUNTED}
    table |= _times_per_step(rows, unit) if comparison.per_step else _times(rows, unit)
    table["interval"] = _intervals(rows)
    if not comparison.per_step:
        table["share"] = _texts(rows["share"], lambda share: f"{100 * share:.1f} %")
    table["p"] = _texts(rows["p"], table_columns.blank_if_missing(p_text))
    table["state"] = rows["state"]
    return Table(table)


def _times(rows: Table, unit: str | None) -> dict[str, list[str]]:
    change = table_columns.blank_if_missing(_change)
    return {
        **{name: _texts(rows[name], _time(unit)) for name in ("before_ns", "after_ns")},
        "diff_ns": _texts(rows["diff_ns"], lambda ns: _signed(ns, unit)),
        "change": _texts(rows["ratio"], change),
    }


def _times_per_step(rows: Table, unit: str | None) -> dict[str, list[str]]:
    """Return the means per step."""
    means = [rows[f"step_{side}_ns"].round().astype("int64") for side in ("before", "after")]
    return {
        "before_ns": _texts(means[0], _time(unit)),
        "after_ns": _texts(means[1], _time(unit)),
        "diff_ns": _texts(means[1] - means[0], lambda ns: _signed(ns, unit)),
        "change": _texts(rows["step_ratio"], table_columns.blank_if_missing(_change)),
    }


def _time(unit: str | None) -> Callable[[int], str]:
    return units.time if unit is None else lambda ns: units.time_in(unit, ns)


def _intervals(rows: Table) -> list[str]:
    """Return the interval of the change per step: ``-1.2 … +3.4 %``, '' where it is unknown."""
    ends = zip(rows["step_ratio_low"].tolist(), rows["step_ratio_high"].tolist(), strict=True)
    return [interval_text(low, high) if low != table_columns.MISSING else "" for low, high in ends]


def interval_text(low: float, high: float) -> str:
    """Return the bounds in per cent, with a decimal unless they are far apart."""
    decimals = 0 if high - low > WIDE else 1
    first, second = (
        f"{round(100 * (end - 1), decimals) + 0.0:+.{decimals}f}" for end in (low, high)
    )
    return f"{first} … {second} %"


def _renamed(rows: Table) -> list[str]:
    pairs = zip(rows["kernel_before"].tolist(), rows["kernel"].tolist(), strict=True)
    return [f"{old} -> {new}" if old else str(new) for old, new in pairs]


def _pairs(rows: Table, count: str) -> list[str]:
    pairs = zip(rows[f"{count}_before"].tolist(), rows[f"{count}_after"].tolist(), strict=True)
    return [
        units.count(before) if before == after else ARROW.join(map(units.count, (before, after)))
        for before, after in pairs
    ]


def _texts(column: Array, write: Any) -> list[str]:
    return [write(value) for value in column.tolist()]


def _signed(ns: int, unit: str | None = None) -> str:
    text = units.time(ns) if unit is None else units.time_in(unit, ns)
    return f"+{text}" if ns > 0 else text


def _change(ratio: float) -> str:
    return table_columns.change(ratio - 1)


def p_text(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004 - the usual limit in papers


def verdict_lines(verdicts: Sequence[Verdict]) -> str:
    return "".join(f"{PASSED if v.passed else FAILED}: {_line(v)}\n" for v in verdicts)


def _line(verdict: Verdict) -> str:
    """Return a verdict on one line; control characters of names are replaced."""
    line = f"{verdict.line} ({verdict.note})" if verdict.note else verdict.line
    return tables.clean(line)
