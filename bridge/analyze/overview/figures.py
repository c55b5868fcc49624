"""The figures at the head of a page, and where the work without an op went."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.groups import counts
from bridge.analyze.overview.axis import Axis
from bridge.analyze.totals import totals
from bridge.analyze.why import why
from bridge.join.attributed import Attributed
from bridge.join.attribution import REASONS
from bridge.join.intervals import busy
from bridge.join.order import NONE
from importers import frames

NAMES = ("kernels", "copies", "fills", "graphs")  # of frames.ACTIVITY_KINDS


def figures(joined: Attributed, axis: Axis) -> dict[str, Any]:
    """Return the accounting and what stands at the head: times in ns, counts, the devices' busy time."""
    activities, devices = joined.report.activities, Devices.of_report(joined)
    kinds = counts(frames.codes(activities["kind"]), len(NAMES)).tolist()
    start = frames.ints(activities, "start")
    spans = [facts.span for facts in joined.report.facts]
    op = joined.activity_op
    return {
        "totals": totals(joined),
        "span_ns": axis.length,
        **dict(zip(NAMES, kinds, strict=True)),
        "ops": len(np.unique(op[op != NONE])),
        "calls": int(joined.call.max(initial=NONE)) + 1,
        "steps": _steps(joined),
        "devices": [
            {"name": name, "busy_ns": time, "span_ns": spans[report][1] - spans[report][0]}
            for name, report, time in zip(
                devices.names,
                devices.report,
                busy(devices.of, start, joined.end, len(devices.names)).tolist(),
                strict=True,
            )
        ],
    }


def reasons(joined: Attributed) -> list[dict[str, Any]]:
    """Return for every reason that any activity has what it means, and what would change it for the longest one."""
    codes, found = list(REASONS), []
    for reason, part in totals(joined)["unattributed"].items():
        rows = np.flatnonzero(joined.attribution.reason == codes.index(reason))
        longest = rows[[np.argmax(joined.duration[rows])]]
        changed = why(joined, longest).remedy
        found.append({"reason": reason, **part, "meaning": REASONS[reason], "remedy": changed})
    return found


def _steps(joined: Attributed) -> dict[str, int] | None:
    """Return how many steps there are, and how long one takes on the CPU: the middle one, the longest."""
    steps = joined.steps
    if not len(steps):
        return None
    length = np.sort(steps.end - steps.start)
    return {
        "count": len(steps),
        "median_ns": int(length[(len(length) - 1) // 2]),
        "max_ns": int(length[-1]),
    }
