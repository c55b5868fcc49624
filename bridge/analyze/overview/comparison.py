"""Two overviews beside each other: ops matched by name, their work by op and name, figures one for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.join.arrays import NONE


def comparison(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ops of both as columns, largest change first; None where one has no such op.

    Times are those on the GPU (``unit`` "gpu"), or where neither has any those on the CPU ("cpu"), in ns.
    ``ratio`` is b / a, None where a is 0 or either is missing (a missing one counts 0 in ``delta_ns``).
    """
    unit = "gpu" if any(one["figures"]["totals"]["gpu_ns"] for one in (a, b)) else "cpu"
    ops = _matched(_ops(a, unit), _ops(b, unit))
    keys = sorted(ops, key=lambda key: (-abs(_delta(ops[key])), key))
    place = {key: at for at, key in enumerate(keys)}
    work = _matched(_work(a), _work(b))
    under = sorted(work, key=lambda key: (place[key[:2]], -abs(_delta(work[key])), key))
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


Figures = dict[str, int]
Pair = tuple[Figures | None, Figures | None]


def _matched(a: dict[Any, Figures], b: dict[Any, Figures]) -> dict[Any, Pair]:
    return {key: (a.get(key), b.get(key)) for key in {**a, **b}}


def _ops(one: Mapping[str, Any], unit: str) -> dict[tuple[str, str], Figures]:
    table = one["operators"]
    if table is None:
        return {}
    times = table["gpu_self_ns" if unit == "gpu" else "cpu_total_ns"]
    rows = zip(_keys(one), times, table["calls"], strict=True)
    return {key: {"ns": time, "calls": calls} for key, time, calls in rows}


def _keys(one: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and kind of every op; what is summed up goes by one name in both."""
    table = one["operators"]
    named = (one["names"][name] for name in table["name"])
    return [
        ("more ops" if kind == "other" else name, kind)
        for name, kind in zip(named, table["kind"], strict=True)
    ]


def _work(one: Mapping[str, Any]) -> dict[tuple[str, str, str], Figures]:
    if one["operators"] is None:
        return {}
    keys, work = _keys(one), one["operators"]["work"]
    columns = zip(work["of"], work["name"], work["total_ns"], work["count"], strict=True)
    return {
        (*keys[of], one["names"][name]): {"ns": time, "calls": count}
        for of, name, time, count in columns
    }


def _delta(pair: Pair) -> int:
    a, b = (_time(one) or 0 for one in pair)
    return b - a


def _columns(pairs: Sequence[Pair]) -> dict[str, list[Any]]:
    a, b = ([pair[side] for pair in pairs] for side in (0, 1))
    return {
        "a_ns": [_time(one) for one in a],
        "b_ns": [_time(one) for one in b],
        "delta_ns": [_delta(pair) for pair in pairs],
        "ratio": [_ratio(*pair) for pair in pairs],
        "a_calls": [None if one is None else one["calls"] for one in a],
        "b_calls": [None if one is None else one["calls"] for one in b],
    }


def _ratio(a: Figures | None, b: Figures | None) -> float | None:
    before, after = _time(a), _time(b)
    return after / before if before and after is not None else None


def _time(one: Figures | None) -> int | None:
    """Return the time, None where there is no such op or its time is not known."""
    return None if one is None or one["ns"] == NONE else one["ns"]
