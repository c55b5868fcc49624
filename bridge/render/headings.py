"""What a column is headed by, and in which unit it is shown, told by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from bridge.render import units

# -- The line under every table that says where all activities went


def line(totals: Mapping[str, Any], ops: int) -> str:
    """Return ``10 000 activities, 1.234 s: 99.2 % in 41 ops; 0.8 % outside: no range 61 (0.7 %)``.

    Per cents are of the time of all activities on the GPU.
    """
    if not totals["activities"]:
        return "nothing ran on a device"
    time = totals["gpu_ns"]
    head = f"{units.count(totals['activities'])} activities, {units.time(time)}"
    inside = f"{_share(totals['attributed_ns'], time)} in {units.count(ops)} ops"
    rest = totals["unattributed"]
    if not rest:
        return f"{head}: {inside}; nothing outside"
    reasons = ", ".join(
        f"{reason.replace('_', ' ')} {units.count(part['activities'])} ({_share(part['gpu_ns'], time)})"
        for reason, part in rest.items()
    )
    return f"{head}: {inside}; {_share(time - totals['attributed_ns'], time)} outside: {reasons}"


def _share(part: int, whole: int) -> str:
    return units.percent(part / whole if whole else 0.0)


# -- What a column is headed by, and in which unit it is shown, told by its name


SHARES = {
    "share": "of GPU",
    "total_share": "total of GPU",
    "cpu_share": "of CPU",
    "in_kernels_ns": "in kernels",
    "tensor_core_ns": "Tensor Cores",
    "tensor_core_unknown_ns": "not known",
    "tensor_core_share": "on Tensor Cores",
    "peak_share": "of peak",
    "bandwidth_share": "of bandwidth",
    "tflop_per_s": "reached",
    "gb_per_s": "speed",
    "moved_bytes": "bytes moved",
    "counted_ns": "GPU counted",
    "peak_tflops": "peak",
    "peak_dtype": "in",
    "spread_share": "spread",
    "workspace_bytes": "workspace",
}
UPPER = {"gpu": "GPU", "cpu": "CPU", "api": "API", "ns": "", "mfu": "MFU", "flop": "FLOP"}
IDENTITIES = frozenset(
    "pid tid stream context step registers rank".split()
)  # numbers that count nothing
OF_LITTLE_USE = frozenset(
    "context registers shared_bytes formula peak_dtype".split()
)  # beside what else tells rows apart
MISSING = -1
# Columns in which this says that it is not known; in other times it is a time.
UNKNOWABLE = frozenset(
    "bytes shared_bytes gb_per_s bus_gb_per_s wait_ns transfer_ns queue_min_ns queue_max_ns sm_efficiency occupancy"
    " arrival_mean_ns arrival_max_ns clock_spread_ns flop flop_once tflop_per_s moved_bytes intensity peak_share bandwidth_share mfu peak_tflops workspace_bytes".split()
)


def known(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return how values are written of which -1 is none."""
    return partial(_unless_missing, text)


def _unless_missing(text: Callable[[Any], str], value: object) -> str:
    return "" if value == MISSING else text(value)


def row(number: int) -> str:
    """Write the row of a frame, as `bridge why` takes it."""
    return f"#{number}"


def change(share: float) -> str:
    """Write a share of 1 as per cent with its sign, which nothing has as a gain."""
    return f"{round(100 * share, 1) + 0.0:+.1f} %"


UNITS: dict[str, Callable[[Any], str]] = {
    "bytes": units.size,
    "gb_per_s": units.rate,
    "bus_gb_per_s": units.rate,
    "sm_efficiency": units.percent,
    "occupancy": units.percent,
    "change": change,
    "skew": change,
    "example": row,
    "flop": units.flop,
    "flop_once": units.flop,
    "tflop_per_s": units.tflops,
    "peak_tflops": units.tflops,
    "mfu": units.percent,
}


def heading(column: str) -> str:
    """Return ``GPU self`` for ``gpu_self_ns``; of a share what it is of."""
    if column in SHARES:
        return SHARES[column]
    return " ".join(word for part in column.split("_") if (word := UPPER.get(part, part)))


def text(name: str, column: pd.Series) -> Callable[[Any], str]:
    """Return how the values of a column are written."""
    told = _told(name, column)
    return known(told) if name in UNKNOWABLE else told


def _told(name: str, column: pd.Series) -> Callable[[Any], str]:
    if name in UNITS or name.endswith("_bytes"):
        return UNITS.get(name, units.size)
    if name.endswith("_ns"):
        return units.time
    if name in IDENTITIES:
        return given
    if not is_numeric_dtype(column):
        return str
    if name.endswith("share"):
        return units.percent
    return number if is_float_dtype(column) else units.count


def number(value: float) -> str:
    """Write a number that is no time, no size and no share."""
    return f"{value:.2f}"


def given(value: object) -> str:
    """Write a value as it is, and nothing for what is missing."""
    return "" if value == MISSING else str(value)
