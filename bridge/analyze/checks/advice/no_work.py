"""The rule for a capture in which next to nothing ran on a device: no other rule can say anything of it."""

from __future__ import annotations

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NOT_ESTIMATED, NSIGHT_BRIDGE, Finding, Rule
from bridge.analyze.core.device_work import NoDeviceWork

NAME = "no-device-work"


def no_device_work(evidence: Evidence) -> Finding | None:
    """Find that next to nothing ran on a device."""
    found = NoDeviceWork.of(evidence.attributed)
    if found is None:
        return None
    calls = np.flatnonzero(evidence.attributed.counted_launches)
    said = [f'; the program printed: "{text}"' for text in found.printed]
    said += [f'; the profiler says: "{text}"' for text in found.messages]
    figures = {
        "what": _what(found),
        "activities": found.activities,
        "busy_ns": found.busy_ns,
        "calls": found.calls,
        "unread": found.unread,
        "said": "".join(said),
    }
    return Finding(figures, rule.call_table(evidence, calls))


def _what(found: NoDeviceWork) -> str:
    """Return what ran, and what is not read."""
    if found.activities:
        return f"activities on a GPU: {found.activities}, less than 1 % of the run"
    unread = f"; events of a device that are not read: {found.unread}" if found.unread else ""
    return f"no kernels, memcpys or memsets{unread}"


RULES = (
    Rule(
        NAME,
        "Nothing, or next to nothing, ran on a GPU",
        "less than 1% of the run is work on a GPU, without kernels or below 10 us; then no other rule is listed",
        "{what}; CUDA calls: {calls}{said}",
        "find out why the program did not come to its work on a GPU, and record it to its end;"
        " bridge doctor REPORT quotes what the profiler and the program say",
        NOT_ESTIMATED,
        NSIGHT_BRIDGE,
        (),
        no_device_work,
    ),
)
