"""The rules for captures without work on a device, or without its kernels: no other rule can say anything of them."""

from __future__ import annotations

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.core.device_work import NoDeviceWork
from bridge.analyze.core.table import Table
from bridge.analyze.core.unrecorded import Unrecorded, library_of

NAME, NOT_RECORDED = "no-device-work", "not-recorded"
ALONE = frozenset(
    [NAME, NOT_RECORDED]
)  # rules beside which no other is listed, but those that come first


def no_device_work(evidence: Evidence) -> Finding | None:
    """Find that no work on a device is in a capture, or next to none."""
    found = NoDeviceWork.of(evidence.attributed)
    if found is None or found.unrecorded:
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


def not_recorded(evidence: Evidence) -> Finding | None:
    """Find that work ran on a GPU, and was not recorded."""
    found = Unrecorded.of(evidence.attributed)
    if found is None:
        return None
    ran = [f"{one.name} of {one.library} ran {one.count} times" for one in found.ranges]
    if found.launches:
        ran = [f"launches that succeeded and left nothing: {found.launches} of {found.every}"]
    figures = {
        "what": "; ".join(ran),
        "launches": found.launches,
        "calls": found.calls,
        "said": "".join(f'; the profiler says: "{text}"' for text in found.messages),
    }
    return Finding(figures, _calls_or_ranges(evidence))


def _calls_or_ranges(evidence: Evidence) -> Table:
    """Return the CUDA calls; without any, the ranges of libraries that work on GPUs."""
    calls = np.flatnonzero(evidence.attributed.counted_launches)
    if len(calls):
        return rule.call_table(evidence, calls)
    nodes, nesting = (
        np.flatnonzero(evidence.nodes_with_op(library_of)),
        evidence.attributed.hierarchy,
    )
    return rule.node_table(evidence, nodes, (nesting.end - nesting.start)[nodes])


def _what(found: NoDeviceWork) -> str:
    """Return what ran, and what is not read."""
    if found.activities:
        return f"activities on a GPU: {found.activities}, less than 1 % of the run"
    unread = f"; events of a device that are not read: {found.unread}" if found.unread else ""
    return f"no kernels, memcpys or memsets{unread}"


RULES = (
    Check(
        name=NAME,
        title="No work on a GPU, or next to none, is in the report",
        when="less than 1% of the run is work on a GPU, without kernels or below 10 us; then no other rule is listed",
        text="{what}; CUDA calls: {calls}{said}",
        remedy="find out why the program did not come to its work on a GPU, and record it to its end;"
        " bridge doctor REPORT quotes what the profiler and the program say",
        source=NSIGHT_BRIDGE,
        needs=(),
        find=no_device_work,
    ),
    Check(
        name=NOT_RECORDED,
        title="Work on a GPU was not recorded",
        when="launches returned success, or a library ran ranges that work on a GPU, and the report holds no kernel or graph,"
        " or less than half of them; then no other rule is listed",
        text="{what}; CUDA calls: {calls}{said}",
        remedy="record with nsys profile --trace=cuda,nvtx (cuda-sw where the profiler dropped records), started before the"
        " program creates its CUDA context, and let the program end by itself",
        source=NSIGHT_BRIDGE,
        needs=(),
        find=not_recorded,
    ),
)
