"""Operators as MegEngine's profile_analyze lists them: one per call or per type, filtered, sorted, the longest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.flops import Known
from bridge.analyze.tables.range_metrics import first_slices
from bridge.analyze.tables.ranges import by_call
from bridge.report import Joined

SIDES = DEVICE, HOST = ("device", "host")
ENDS = END, KERN = ("end", "kern")  # time of the work; how long it waited before
HOW = ("max", "min", "sum", "mean")
TIME = "time"
COLUMNS = ("time", "type", "name", "computation", "FLOPS", "memory", "bandwidth", "in_shapes", "out_shapes")  # fmt: skip
NONE = -1


@dataclass(frozen=True)
class Asked:
    """What to list; times in ns. ``how`` makes one row of all calls of a type."""

    types: Sequence[str] = ()
    name: str | None = None
    dtype: str | None = None
    end: str = END
    how: str | None = None
    order: str = TIME
    least_ns: int = 0
    most_ns: int | None = None


def operators(joined: Joined, side: str, asked: Asked) -> pd.DataFrame:
    """Return a row per operator that is asked for.

    Columns: ``time`` (ns), ``share`` of all operators' and ``cumulative`` in this order, type, name, count,
    computation and memory (-1 where no call says any), FLOPS and bandwidth (per second, nan where they
    make no sense), in_shapes, out_shapes. Raises ValueError for a wrong order or expression.
    """
    calls = by_call(joined.attributed)
    known, firsts = _known(joined), first_slices(joined.attributed)
    time = {DEVICE: "queue_ns" if asked.end == KERN else "gpu_self_ns", HOST: "cpu_self_ns"}[side]
    table = pd.DataFrame(
        {
            "time": calls[time],
            "type": calls["op"],
            "name": calls["path"],
            "dtype": calls["dtype"],
            "computation": known.flops[firsts],
            "memory": known.bytes[firsts],
            "in_shapes": calls["shape"],
            "out_shapes": calls["output_shape"],
            "count": 1,
        }
    )
    whole = int(table["time"].sum())
    if side == DEVICE:
        table = table[(calls["gpu_self_ns"] > 0).to_numpy()]
    table = _filtered(table, asked)
    table = _with_speeds(table) if asked.how is None else _aggregated(table, asked.how)
    table = _ordered(_between(table, asked), asked.order)
    return table.assign(share=table["time"] / max(whole, 1), cumulative=table["time"].cumsum())


def _known(joined: Joined) -> Known:
    """Return what calls compute as MegEngine's profiler counts it, unless they say it themselves."""
    return Known.of(joined.attributed, "megengine", told=True)


def _filtered(table: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    if asked.types:
        table = table[table["type"].isin(asked.types)]
    if asked.name is not None:
        try:
            named = re.compile(asked.name).match
        except re.error as error:
            raise ValueError(f"{asked.name!r} is no regular expression: {error}") from error
        table = table[table["name"].map(lambda name: named(name) is not None).astype(bool)]
    if asked.dtype is not None:
        kept = table["dtype"].map(lambda types: asked.dtype in types.split(", ")).astype(bool)
        table = table[kept]
    return table


def _between(table: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    most = np.inf if asked.most_ns is None else asked.most_ns
    return table[(table["time"] >= asked.least_ns) & (table["time"] <= most)]


def _aggregated(table: pd.DataFrame, how: str) -> pd.DataFrame:
    """Make one row per type; costs and speeds are of the calls that say what they cost."""
    groups = table.groupby("type", sort=False)
    found = groups.agg(time=("time", how), count=("count", "sum")).reset_index()
    for cost, speed in SPEEDS.items():
        said = table[table[cost] != NONE].groupby("type", sort=False)
        found[cost] = found["type"].map(said[cost].agg(how)).fillna(NONE)
        # By the time of those calls alone: the others would make the speed too low.
        found[speed] = (
            found["type"].map(said[cost].sum() / said["time"].sum().replace(0, np.nan)) * NS
        )
    return found.assign(name="", in_shapes="", out_shapes="")


SPEEDS = {"computation": "FLOPS", "memory": "bandwidth"}
NS = 1e9


def _with_speeds(table: pd.DataFrame) -> pd.DataFrame:
    speeds = {
        speed: np.where(
            table[cost] == NONE, np.nan, table[cost] / table["time"].replace(0, np.nan) * NS
        )
        for cost, speed in SPEEDS.items()
    }
    return table.assign(**speeds)


def _ordered(table: pd.DataFrame, order: str) -> pd.DataFrame:
    """Sort by a column, + for smallest first; what has no value there comes last either way."""
    column, ascending = order.removeprefix("+"), order.startswith("+")
    if column not in (*COLUMNS, "count"):
        raise ValueError(f"no column {column!r} to order by: one of {', '.join(COLUMNS)}, count")
    key = table[column]
    missing = (key == NONE) if column in SPEEDS else key.isna()
    keyed = table.assign(_missing=missing).sort_values(
        ["_missing", column, "name"], ascending=[True, ascending, True], kind="stable"
    )
    return keyed.drop(columns="_missing").reset_index(drop=True)
