"""Documents that are small enough to be read by a language model, or sent in a message.

They hold the figures of the JSON documents under the same names, with fewer bytes: tables are columns
and rows instead of objects, times are whole ns, other figures have four significant digits, and what a
document does not tell is left out. Rows that do not fit into a number of bytes are left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bridge.analyze.checks.excerpt import Excerpt
from bridge.analyze.checks.why import Why
from bridge.analyze.core.table import Table
from bridge.render.advice import records, with_figures

LONGEST = 160  # characters of a text in a row
DIGITS = 4
MOST_FAILURES = 3
TIME = "_ns"
NEXT = "NEXT"
Document = dict[str, Any]
# The columns of a comparison that answer what changed; a table of all of them takes twice the room.
OF_DIFF = (
    "calls_before calls_after activities_before activities_after before_ns after_ns diff_ns ratio"
    " step_before_ns step_after_ns step_ratio p state"
).split()
NOT_OF_DIFF = (
    "calls_before calls_after activities_before activities_after before_ns after_ns diff_ns ratio share"
    " step_before_ns step_after_ns low_ns high_ns p q step_ratio step_ratio_low step_ratio_high state"
    " matched_calls unmatched_before unmatched_after call_mean_diff_ns call_median_diff_ns"
).split()
OF_CHANGE = "cause before_ns after_ns diff_ns ratio p state".split()


# -- Tables


@dataclass
class Rows:
    """Some rows of a table.

    Attributes:
        columns: the names of the columns.
        rows: the values of each row, as JSON.
        left_out: the number of rows after these.
        skipped: the number of rows before these.

    """

    columns: Sequence[str]
    rows: list[str]
    left_out: int
    skipped: int = 0

    @classmethod
    def of(cls, objects: Sequence[Mapping[str, Any]], left_out: int = 0) -> Rows:
        """Return a table from one object per row, all with the same names."""
        columns = list(objects[0]) if objects else []
        rows = [_dumped([_cell(name, row[name]) for name in columns]) for row in objects]
        return cls(columns, rows, left_out)

    @classmethod
    def of_frame(cls, table: Table, top: int, skip: int = 0) -> Rows:
        """Return ``top`` rows of a data frame, without the first ``skip``."""
        result = cls.of(records(table[skip : skip + top]))
        left_out = max(0, len(table) - skip - len(result.rows))
        return cls([str(name) for name in table.columns], result.rows, left_out, skip)

    def drop_last(self) -> int:
        """Leave out the last row; return its number of bytes."""
        self.left_out += 1
        return _size(self.rows.pop()) + 2  # with the comma and the line break

    @property
    def parts(self) -> dict[str, str]:
        """The entries of a JSON object, as JSON."""
        left_out = {"left_out": str(self.left_out)} if self.left_out else {}
        rows = ",\n".join(self.rows)
        return {"columns": _dumped(self.columns), "rows": f"[{rows}]", **left_out}


def as_text(document: Mapping[str, Any], limit: int, more: str = "") -> str:
    """Return a JSON object of at most about ``limit`` bytes.

    Values that are `Rows` lose rows from their end, those with most rows first, down to one each;
    under the name ``rows`` their parts stand in the object itself. ``more`` says how to get the rows
    that were left out; `NEXT` in it stands for the number of rows up to the last one shown.
    """
    tables = [value for value in document.values() if isinstance(value, Rows)]
    for _ in range(2):  # once more with the count of the rows that the first time left out
        excess = _size(_object(document, more)) - limit
        while excess > 0 and (longest := _longest(tables)):
            excess -= longest.drop_last()
    return _object(document, more)


def _longest(tables: Sequence[Rows]) -> Rows | None:
    longest = max(tables, key=lambda table: len(table.rows), default=None)
    return longest if longest is not None and len(longest.rows) > 1 else None


def _object(document: Mapping[str, Any], more: str) -> str:
    parts: dict[str, str] = {}
    is_cut, following = False, 0
    for name, value in document.items():
        if not isinstance(value, Rows):
            if not _is_nothing(value):
                parts[name] = _dumped(_tidy(name, value))
            continue
        is_cut |= value.left_out > 0
        if name == "rows":
            parts |= value.parts
            following = value.skipped + len(value.rows)
        elif value.rows:
            parts[name] = f"{{{','.join(_entries(value.parts))}}}"
    if is_cut and more:
        parts["more"] = _dumped(more.replace(NEXT, str(following)))
    return "{" + ",\n".join(_entries(parts)) + "}\n"


def _entries(parts: Mapping[str, str]) -> list[str]:
    return [f"{_dumped(name)}:{text}" for name, text in parts.items()]


def _tidy(name: str, value: Any) -> Any:
    """Return a value with times in whole ns, and without entries that hold nothing."""
    if isinstance(value, Mapping):
        return {key: _tidy(key, v) for key, v in value.items() if not _is_nothing(v)}
    if isinstance(value, list | tuple):
        return [_tidy(name, v) for v in value]
    return _number(name, value)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not len(value))


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[: LONGEST - 1]}…"
    return _number(name, value)


def _number(name: str, value: Any) -> Any:
    """Return a number as it is written: times in whole ns, others with four significant digits."""
    if not isinstance(value, float):
        return value
    if name.endswith(TIME) or value.is_integer():
        return round(value)
    return float(f"{value:.{DIGITS}g}")


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


# -- Documents


def summary(document: Mapping[str, Any]) -> Document:
    """Return the compact form of a document in the format bridge.summary/1."""
    first = document["advice"]
    if first:
        texts = {name: with_figures(first[name], first["figures"]) for name in ("text", "remedy")}
        first = {**_without(first, "figures"), **texts}
    rest = _without(document, "rows", "format")
    return {**rest, **_failures(document), "advice": first, "rows": Rows.of(document["rows"])}


def _failures(document: Mapping[str, Any]) -> Document:
    """Return the sentences on what failed first."""
    told = [{name: one[name] for name in ("kind", "text")} for one in document["failures"]]
    return {"failures": told[:MOST_FAILURES]}


def advice(document: Mapping[str, Any], top: int) -> Document:
    """Return the compact form of a document in the format bridge.advice/1: the first pieces whole."""
    pieces = [
        {**_without(piece, "figures"), "evidence": [_rounded(row) for row in piece["evidence"]]}
        for piece in document["advice"]
    ]
    needs: dict[str, list[str]] = {}
    for rule in document["not_judged"]:
        needs.setdefault(rule["record"], []).append(rule["rule"])
    return {
        **{name: document[name] for name in ("source", "wall_ns")},
        **_failures(document),
        "advice": pieces[:top],
        "further": [piece["rule"] for piece in pieces[top:]],
        "small": [piece["rule"] for piece in document["small"]],
        "passed": document["passed"],
        "not_judged": needs,
    }


def _rounded(row: Mapping[str, Any]) -> Document:
    return {name: _cell(name, value) for name, value in row.items()}


def diff(document: Mapping[str, Any], left_out: int) -> Document:
    """Return the compact form of a document in the format bridge.diff/1: without bounds and samples."""
    rows = [
        {name: value for name, value in row.items() if name in OF_DIFF or name not in NOT_OF_DIFF}
        for row in document["rows"]
    ]
    per_step = document["steps"]["per_step"]
    if not per_step:
        rows = [{n: v for n, v in row.items() if not n.startswith("step_")} for row in rows]
    overall = document["overall"] or {}
    changes = {name: _change(overall.get(name)) for name in ("iteration", "idle")}
    return {
        **{name: document[name] for name in ("before", "after", "by", "times", "totals")},
        "per_step": per_step,
        **changes,
        "gpu": overall.get("gpu"),
        "causes": Rows.of([_change(cause) for cause in overall.get("causes", ())]),
        "rows": Rows.of(rows, left_out),
    }


def _change(change: Mapping[str, Any] | None) -> Document:
    return {name: change[name] for name in OF_CHANGE if name in change} if change else {}


def why(explanation: Why) -> Document:
    """Return the explanation of an activity; times are ns since the first event."""
    document = asdict(explanation)
    name, base = explanation.full_name, document.pop("base_ns")
    document["full_name"] = "" if name == explanation.activity.name else _cell("", name)
    if explanation.reports == 1:
        document.pop("reports")
    result: Document = _shortened(base, document)
    return result


def _shortened(base: int, value: Any) -> Any:
    """Return a value in which times count from ``base``; what a range repeats or has as usual is left out."""
    if isinstance(value, list | tuple):
        return [_shortened(base, v) for v in value]
    if not isinstance(value, Mapping):
        return value
    result = {
        key: v - base if key in {"start_ns", "end_ns"} else _shortened(base, v)
        for key, v in value.items()
    }
    is_whole = result.pop("ended", True)
    usual = [
        key for key in ("text", "op") if "name" in result and result.get(key) == result["name"]
    ]
    return {**_without(result, *usual), **({} if is_whole else {"ended": False})}


def excerpt(part: Excerpt, top: int) -> Document:
    """Return what ran between two instants, ``top`` rows of each table."""
    tables = {
        name: Rows.of_frame(getattr(part, name), top)
        for name in ("devices", "ops", "api", "work", "gaps")
    }
    return {"first_ns": part.first_ns, "last_ns": part.last_ns, **tables}


def _without(document: Mapping[str, Any], *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}
