"""Reasons that lie with what was recorded: work that is hidden, work that leads to no op, times that cannot be."""

from __future__ import annotations

import numpy as np

from bridge.analyze import validity
from bridge.analyze.advice import needs
from bridge.analyze.metrics import no_timeline
from bridge.analyze.quality.reasons import COUNT, SHARE, Capture, Measured, Reason
from bridge.join.arrays import NONE
from bridge.join.attribution import NO_LAUNCH
from importers import frames


def no_kernels(seen: Capture) -> Measured | None:
    """Whether calls of CUDA were recorded, and no kernel."""
    calls = len(seen.report.launches)
    if not calls:
        return None
    kernels = int(seen.of_kind(frames.KERNEL, frames.GRAPH).sum())
    said = "{calls} API calls and not one kernel: nothing of the GPU's work is there"
    return Measured(float(not kernels), said, {"calls": calls})


def opaque_graphs(seen: Capture) -> Measured | None:
    """The share of the GPU time in graphs without their nodes."""
    if not seen.counted.any():
        return None
    rows = needs.opaque(seen)
    said = "{work_share} of GPU time is in {graphs} graphs recorded as a whole"
    figures = {"graphs": len(rows), "work_share": needs.share(seen, rows)}
    return Measured(needs.share(seen, rows), said, figures)


def no_api_record(seen: Capture) -> Measured | None:
    """The share of the time of kernels and graphs that no API call leads to."""
    work = seen.of_kind(frames.KERNEL, frames.GRAPH)
    if not work.any() or not no_timeline.has_timeline(seen.report):
        return None
    lost = work & (seen.joined.attribution.reason == NO_LAUNCH)
    spent, whole = (int(seen.time[rows].sum()) for rows in (lost, work))
    share = spent / max(whole, 1)
    said = "{kernels} kernels, {work_share} of their time, have no API call that leads to an op"
    return Measured(share, said, {"kernels": int(lost.sum()), "work_share": share})


def _computes(seen: Capture) -> bool:
    return bool(seen.of_kind(frames.KERNEL, frames.GRAPH).any())


def no_ops(seen: Capture) -> Measured | None:
    """Whether work ran, and no range that could own it is there."""
    if not _computes(seen) or not no_timeline.has_timeline(seen.report):
        return None
    none = not (seen.joined.op != NONE).any()
    return Measured(float(none), "no range at all: no work can be led to an op", {})


def outside_ops(seen: Capture) -> Measured | None:
    """The share of the GPU time that was launched outside any op."""
    if not seen.counted.any() or not (seen.joined.op != NONE).any():
        return None
    rows = needs.outside(seen)
    share = needs.share(seen, rows)
    said = "{work_share} of GPU time was launched outside any op"
    return Measured(share, said, {"work_share": share})


def open_ranges(seen: Capture) -> Measured | None:
    """The share of the ranges that never ended."""
    ranges = seen.report.ranges
    if not len(ranges) or not no_timeline.has_timeline(seen.report):
        return None
    cut = int(ranges["open"].sum())
    said = "{cut} of {ranges} ranges never ended: they reach to the end of the capture"
    return Measured(cut / len(ranges), said, {"cut": cut, "ranges": len(ranges)})


def unlawful_times(seen: Capture) -> Measured | None:
    """The share of the rows whose times cannot be."""
    if not no_timeline.has_timeline(seen.report):
        return None
    found = {name: len(rows) for name, rows in validity.wrong_times(seen.joined).items()}
    every = sum(len(getattr(seen.report, name)) for name in found)
    wrong = sum(found.values())
    kinds = ", ".join(f"{count} {name}" for name, count in found.items() if count)
    said = f"times that cannot be, before the session or ending before they start: {kinds}"
    return Measured(wrong / max(every, 1), said, {})


def skewed_clocks(seen: Capture) -> Measured | None:
    """The share of the work that ran before it was launched: the GPU's clock is off the host's."""
    launch = seen.joined.attribution.launch
    rows = np.flatnonzero((launch != NONE) & (seen.time > 0))
    if not len(rows):
        return None
    start = frames.ints(seen.report.activities, "start")[rows]
    ahead = frames.ints(seen.report.launches, "start")[launch[rows]] - start
    early, most = int((ahead > 0).sum()), int(ahead.max())
    said = (
        "{early} of {work} activities began before the call that launched them, by up to {most_ns}"
    )
    figures = {"early": early, "work": len(rows), "most_ns": max(most, 0)}
    return Measured(early / len(rows), said, figures)


def no_gpu_names(seen: Capture) -> Measured | None:
    """The share of the devices used of which not even the name is known."""
    devices = seen.report.devices
    if not len(devices) or not no_timeline.has_timeline(seen.report):
        return None
    nameless = int((devices["name"].astype(object) == "").sum())
    said = "of {nameless} of {devices} GPUs not even the name is known: no peaks, no occupancy"
    return Measured(nameless / len(devices), said, {"nameless": nameless, "devices": len(devices)})


REASONS = (
    Reason(
        "no-kernels",
        "calls of CUDA, and no kernel",
        COUNT,
        0,
        1,
        80,
        "record the part that computes, until it is done; see what stopped the capture: bridge doctor",
        no_kernels,
    ),
    Reason(
        "opaque-graphs",
        "GPU time in CUDA graphs that were recorded as a whole",
        SHARE,
        0.0,
        1.0,
        40,
        "nsys profile --cuda-graph-trace=node",
        opaque_graphs,
    ),
    Reason(
        "no-api-record",
        "time of kernels and graphs without an API call",
        SHARE,
        0.005,
        0.5,
        30,
        f"{needs.TRACE}; wait for the GPU (torch.cuda.synchronize()) before the capture begins",
        no_api_record,
    ),
    Reason(
        "no-ops",
        "work, and no range",
        COUNT,
        0,
        1,
        30,
        f"{needs.ANNOTATE}; PyTorch's profiler: ProfilerActivity.CPU",
        no_ops,
    ),
    Reason(
        "outside-ops",
        "GPU time launched outside any op, where there are ops",
        SHARE,
        needs.OUTSIDE,
        1.0,
        30,
        "annotate it: @nvtx_op, bridge.torch.annotate(model); bridge why names what is missing",
        outside_ops,
    ),
    Reason(
        "open-ranges",
        "ranges that never ended",
        SHARE,
        0.0,
        0.1,
        10,
        "end the capture between steps: bridge.profile(…) with .step(), and let the program end by itself",
        open_ranges,
    ),
    Reason(
        "unlawful-times",
        "ranges, calls and activities that begin before the session or end before they start",
        SHARE,
        0.0,
        0.05,
        15,
        "capture again; if it comes back, with another nsys or driver",
        unlawful_times,
    ),
    Reason(
        "skewed-clocks",
        "activities that began before the call that launched them",
        SHARE,
        0.001,
        0.2,
        15,
        "idle times, gaps and waits may be wrong: capture again, with a newer nsys or driver",
        skewed_clocks,
    ),
    Reason(
        "no-gpu-names",
        "GPUs of which not even the name is known",
        SHARE,
        0.0,
        1.0,
        5,
        f"give {needs.DESCRIBED}; --peak says what the GPU can do",
        no_gpu_names,
    ),
)
