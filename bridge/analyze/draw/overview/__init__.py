"""Compute what a page shows of a capture: columns of bounded size, ready to be written as JSON.

The columns hold sums, bins and the longest slices, not rows of the capture. Times are integers in
ns from the first event, names are positions in ``names``, columns are lists; -1 stands for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.analyze.checks.summary import Summary
from bridge.analyze.compare import Comparison
from bridge.analyze.core import validity
from bridge.analyze.draw.overview.axis import Axis, Names, figures, reasons
from bridge.analyze.draw.overview.critical import critical_path
from bridge.analyze.draw.overview.memory import memory
from bridge.analyze.draw.overview.operators import cpu_figures, icicle, operators, utilisation
from bridge.analyze.draw.overview.roofline import roofline
from bridge.analyze.draw.overview.timeline import timeline_columns
from bridge.analyze.run.critical.run import Run
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture


def overview(attributed: AttributedCapture, summary: Summary | None = None) -> dict[str, Any]:
    """Return everything that a page shows of a capture; entries without data are None.

    docs/html.md lists the entries. All sums are exact: entries beyond a limit are summed up.
    ``summary`` is that of the capture if it was computed before.
    """
    names, axis = Names(), Axis.of(attributed)
    summary = summary or Summary.of(attributed)
    critical = critical_path(attributed)
    Run.forget(attributed)  # half of the memory; no other entry needs it
    table = operators(attributed, names)
    return {
        "source": list(attributed.capture.source),
        "figures": {**figures(attributed, axis, summary), "cpu": cpu_figures(attributed)},
        "reasons": reasons(attributed),
        "operators": table,
        "icicle": icicle(attributed, names),
        "timeline": timeline_columns(attributed, axis, names),
        "utilisation": None if summary.use.nothing else utilisation(attributed, axis),
        "memory": memory(attributed, axis),
        "roofline": roofline(attributed, names),
        "critical": critical,
        "notes": [*attributed.capture.warnings, *validity.warnings(attributed)],
        "names": names.listed,
    }


# -- Comparison of two overviews


def comparison(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ops of two overviews as columns, largest change first.

    An entry is None where one has no such op.

    Times in ns are those on the GPU (``unit`` "gpu"), or if both have none those on the CPU
    ("cpu"). ``ratio`` is b / a, None where a is 0 or either is missing (a missing one counts 0 in
    ``delta_ns``).
    """
    unit = "gpu" if any(side["figures"]["totals"]["gpu_ns"] for side in (a, b)) else "cpu"
    ops = _match(_ops(a, unit), _ops(b, unit))
    keys = sorted(ops, key=lambda key: (-abs(_difference(ops[key])), key))
    place = {key: at for at, key in enumerate(keys)}
    work = _match(_work(a), _work(b))
    under = sorted(work, key=lambda key: (place[key[:2]], -abs(_difference(work[key])), key))
    return {
        "unit": unit,
        "name": [name for name, _ in keys],
        "kind": [kind for _, kind in keys],
        **_columns([ops[key] for key in keys]),
        "work": {
            "of": [place[key[:2]] for key in under],
            "name": [key[2] for key in under],
            **_columns([work[key] for key in under]),
        },
    }


OP = "op"  # the kind of an entry; others are reasons and sums


def states(entries: Mapping[str, Any], compared: Comparison) -> dict[str, list[Any]]:
    """Return columns for the entries of `comparison`, from the comparison by op of the captures.

    ``state`` is the state of the op, ``low`` and ``high`` the bounds of its ratio per step; None
    where there is none.
    """
    rows = compared.rows
    place = {op: at for at, op in enumerate(rows["op"].tolist())}
    keys = zip(entries["name"], entries["kind"], strict=True)
    at = [place.get(name, NONE) if kind == OP else NONE for name, kind in keys]
    columns = {"state": "state", "low": "step_ratio_low", "high": "step_ratio_high"}
    values = {name: [*rows[column].tolist(), NONE] for name, column in columns.items()}
    return {
        name: [None if column[row] == NONE else column[row] for row in at]
        for name, column in values.items()
    }


Values = dict[str, int]
Pair = tuple[Values | None, Values | None]


def _match(a: dict[Any, Values], b: dict[Any, Values]) -> dict[Any, Pair]:
    return {key: (a.get(key), b.get(key)) for key in {**a, **b}}


def _ops(entries: Mapping[str, Any], unit: str) -> dict[tuple[str, str], Values]:
    table = entries["operators"]
    if table is None:
        return {}
    times = table["gpu_self_ns" if unit == "gpu" else "cpu_total_ns"]
    rows = zip(_keys(entries), times, table["calls"], strict=True)
    return {key: {"ns": time, "calls": calls} for key, time, calls in rows}


def _keys(entries: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and kind of each op; the sum of further ops has the same name in both."""
    table = entries["operators"]
    named = (entries["names"][name] for name in table["name"])
    return [
        ("more ops" if kind == "other" else name, kind)
        for name, kind in zip(named, table["kind"], strict=True)
    ]


def _work(entries: Mapping[str, Any]) -> dict[tuple[str, str, str], Values]:
    if entries["operators"] is None:
        return {}
    keys, work = _keys(entries), entries["operators"]["work"]
    columns = zip(work["of"], work["name"], work["total_ns"], work["count"], strict=True)
    return {
        (*keys[of], entries["names"][name]): {"ns": time, "calls": count}
        for of, name, time, count in columns
    }


def _difference(pair: Pair) -> int:
    a, b = (_time(side) or 0 for side in pair)
    return b - a


def _columns(pairs: Sequence[Pair]) -> dict[str, list[Any]]:
    a, b = ([pair[side] for pair in pairs] for side in (0, 1))
    return {
        "a_ns": [_time(side) for side in a],
        "b_ns": [_time(side) for side in b],
        "delta_ns": [_difference(pair) for pair in pairs],
        "ratio": [_ratio(*pair) for pair in pairs],
        "a_calls": [None if side is None else side["calls"] for side in a],
        "b_calls": [None if side is None else side["calls"] for side in b],
    }


def _ratio(a: Values | None, b: Values | None) -> float | None:
    before, after = _time(a), _time(b)
    return after / before if before and after is not None else None


def _time(values: Values | None) -> int | None:
    """Return the time, None if there is no such op or its time is unknown."""
    return None if values is None or values["ns"] == NONE else values["ns"]
