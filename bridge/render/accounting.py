"""The line under every table that says where all activities went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.render import units


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
