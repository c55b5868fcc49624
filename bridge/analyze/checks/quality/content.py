"""Reasons about the profiler (lost records, overhead) and about the recorded content."""

from __future__ import annotations

import re

import numpy as np

from bridge.analyze.checks.advice import needs
from bridge.analyze.checks.check import COUNT, RATE, SHARE, Check, Scale
from bridge.analyze.checks.quality.amount import CaptureEvidence, Measurement
from bridge.analyze.core import validity
from bridge.analyze.core.groups import highest, lowest, sums
from bridge.importers import frames
from bridge.importers.capture import UNREAD
from bridge.importers.frames import key_codes
from bridge.importers.profiler_words import tells_of_loss
from bridge.join.arrays import NONE, Ints
from bridge.join.attribution import NO_LAUNCH

RANGE_COST_NS = 1_000  # minimum time to record a range, see docs/annotate.md
WARNING, ERROR = frames.SEVERITIES.index("warning"), frames.SEVERITIES.index("error")
INCOMPLETE = re.compile(
    r"not all\b|might have not been started|dropped|\blost\b|overflow|truncated|incomplete",
    re.IGNORECASE,
)
CONCERNED = re.compile(r"\bCUDA\b|\bCUPTI\b|\bNVTX\b|\bGPU\b")  # what the reports here rest on
OTHERS = re.compile(
    r"cudnn|cublas|os runtime|osrt|opengl|vulkan|direct ?x|dx1[12]|openmp|openacc|\bmpi\b|ucx|python|sampl|backtrace"
    r"|context switch|perf\b|etw|wddm|network|nic\b|ftrace|video|opencl|openxr",
    re.IGNORECASE,
)
MIN_RANGES = 1_000  # ranges of a thread; the cost of fewer is not measured
SECOND = 1_000_000_000


def overhead(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of the time that the profiler took for itself."""
    if not len(evidence.capture.overhead):
        return None
    result = evidence.overhead
    figures = {"own_share": result.share, "own_ns": result.own, "window_ns": result.window}
    return Measurement(result.share, figures)


def dense_ranges(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of a thread's time that recording its ranges took at least."""
    ranges = evidence.capture.ranges
    ranges = ranges.take(ranges.kind.among(frames.PUSH_POP))
    if not len(ranges):
        return None
    (thread,) = key_codes((ranges.report, ranges.thread))
    size = int(thread.max()) + 1
    count = sums(thread, np.ones(len(thread), np.int64), size)
    start, end = ranges.start, ranges.end
    duration = np.maximum(highest(thread, end, size) - lowest(thread, start, size), 1)
    worst = int(np.argmax(count / duration * (count >= MIN_RANGES)))
    share = float(min(count[worst] * RANGE_COST_NS / duration[worst], 1.0)) * bool(
        count[worst] >= MIN_RANGES
    )
    figures = {
        "ranges": int(count[worst]),
        "lasted_ns": int(duration[worst]),
        "cost_share": share,
    }
    return Measurement(share, figures)


def _warnings(evidence: CaptureEvidence) -> frames.Diagnostics:
    """Return warnings and errors about recorded processes or about none; errors about any."""
    capture = evidence.capture
    table = capture.diagnostics
    severity, process = table.severity, table.process
    severity = np.where(table.source >= frames.PROGRAM, 0, severity)
    is_relevant = np.isin(process, _processes(evidence)) | (process == NONE)
    is_warning = (severity == WARNING) | ((severity > 0) & table.name.matching(tells_of_loss))
    rows = np.flatnonzero((is_warning & is_relevant) | (severity == ERROR))
    return table.take(rows)


def _processes(evidence: CaptureEvidence) -> Ints:
    """Return the processes with any recorded data."""
    capture = evidence.capture
    tables = (capture.ranges, capture.launches, capture.activities)
    return np.unique(np.concatenate([t.process for t in tables]))


ELSEWHERE = "{} (of a process without ranges, CUDA calls and work)"


def messages(evidence: CaptureEvidence) -> tuple[str, ...]:
    """Return the distinct warnings and errors of the profiler: of recorded processes first, then on CUDA and NVTX."""
    here = dict.fromkeys(_warnings(evidence).name)
    table = evidence.capture.diagnostics
    is_warning = np.isin(table.severity, (WARNING, ERROR))
    is_warning |= table.name.matching(tells_of_loss)
    is_profilers = table.source < frames.PROGRAM
    every = dict.fromkeys(table.name[is_warning & is_profilers])
    order = sorted(every, key=lambda text: (text not in here, not CONCERNED.search(text)))
    return tuple(text if text in here else ELSEWHERE.format(text) for text in order)


def _is_incomplete(text: str) -> bool:
    """Return whether a message tells of lost records of CUDA or NVTX, or does not say of what."""
    return bool(INCOMPLETE.search(text)) and not _is_of_others(text)


def _is_of_others(text: str) -> bool:
    """Return whether a message tells of lost records of other APIs alone, which no table needs."""
    is_lost = INCOMPLETE.search(text) and OTHERS.search(text)
    return bool(is_lost) and not CONCERNED.search(text)


def dropped_records(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of processes for which the profiler reports lost records."""
    if not len(evidence.capture.diagnostics):
        return None
    table = _warnings(evidence)
    table = table.take(table.name.matching(_is_incomplete))
    processes = _processes(evidence)
    process = table.process
    affected = len(processes) if (process == NONE).any() else int(np.isin(processes, process).sum())
    affected = affected or int(len(table) > 0)
    certain = table.take(table.name.matching(tells_of_loss))
    message = _most_frequent(certain if len(certain) else table)
    figures = {"hit": affected, "every": len(processes), "message": message}
    return Measurement(affected / max(len(processes), 1), figures)


def profiler_warnings(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the number of other warnings and errors of the profiler."""
    if not len(evidence.capture.diagnostics):
        return None
    table = _warnings(evidence)
    is_other = ~(table.name.matching(_is_incomplete) | table.name.matching(_is_of_others))
    table = table.take(is_other)
    return Measurement(len(table), {"warnings": len(table), "message": _most_frequent(table)})


def _most_frequent(table: frames.Diagnostics) -> str:
    """Return the most frequent message, the first by name of several."""
    if not len(table):
        return ""
    count = np.bincount(table.name.codes)
    return min(table.name.texts[code] for code in np.flatnonzero(count == count.max()).tolist())


def host_tracing(evidence: CaptureEvidence) -> Measurement | None:
    """Measure how much other data of the host was recorded, per second."""
    rates = [
        # The samples are of the whole capture, of which ranges and calls may fill a part only.
        (rows * SECOND / max(facts.session_ns, facts.span[1] - facts.span[0], 1), rows, name)
        for facts in evidence.capture.facts
        for name, rows in facts.beside.items()
        if name != UNREAD
    ]
    if not rates:
        return None
    rate, rows, name = max(rates)
    text = f"{{rows}} {name}, {{rate}} per second"
    return Measurement(rate, {"rows": rows, "rate": round(rate)}, text)


PROFILER_REASONS = (
    Check(
        name="dropped-records",
        title="processes with lost records, as the profiler reports",
        scale=Scale(unit=SHARE, free=0.0, full=1.0, points=20),
        text="for {hit} of {every} processes the profiler reports: {message}",
        remedy="Let the program end by itself, or stop the capture before it ends with"
        " nsys profile --capture-range=cudaProfilerApi. Flush buffers more often with --cuda-flush-interval=1000,"
        " and use an nsys at least as new as the driver.",
        find=dropped_records,
    ),
    Check(
        name="profiler-warnings",
        title="other warnings and errors of the profiler",
        scale=Scale(unit=COUNT, free=0, full=2, points=5),
        text="the profiler warns {warnings} times: {message}",
        remedy="Read all messages in the frame diagnostics or under Diagnostics Summary in nsys-ui.",
        find=profiler_warnings,
    ),
    Check(
        name="profiler-overhead",
        title="the profiler's own time on threads that launch, between the first op or launch and the end of the work",
        scale=Scale(unit=SHARE, free=0.01, full=0.2, points=25),
        text="{own_share} of the time is the profiler's own: {own_ns} of {window_ns}",
        remedy="Begin after start-up and capture longer with bridge run --schedule wait=1,warmup=1,active=5."
        " Flush buffers less often with nsys profile --cuda-flush-interval=0.",
        find=overhead,
    ),
    Check(
        name="dense-ranges",
        title="time to record the ranges of a thread with 1000 or more of them, at 1 us each",
        scale=Scale(unit=SHARE, free=0.02, full=0.3, points=15),
        text="{ranges} ranges on one thread in {lasted_ns}: recording them took at least {cost_share} of it",
        remedy="Annotate fewer and longer parts, or leave out the ranges of libraries with --nvtx-domain-exclude.",
        find=dense_ranges,
        timeline=False,
    ),
    Check(
        name="host-tracing",
        title="calls of the OS runtime, samples of the CPU, context switches: the most frequent of them",
        scale=Scale(unit=RATE, free=1_000, full=100_000, points=5),
        text="{rows} records of the host, {rate} per second",
        remedy="Record less of the host with nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none.",
        find=host_tracing,
    ),
)


# -- Reasons about the content


def no_kernels(evidence: CaptureEvidence) -> Measurement:
    """Measure whether CUDA calls were recorded, but no kernel: in the whole capture, of which a part may have none."""
    calls = len(evidence.capture.launches)
    has_kernels = evidence.capture.activities.kind.among(frames.KERNEL, frames.GRAPH).any()
    return Measurement(float(not has_kernels), {"calls": calls})


def unread_events(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of a device's events that are of kinds that are not read."""
    unread = sum(facts.beside.get(UNREAD, 0) for facts in evidence.capture.facts)
    if not unread:
        return None
    every = unread + len(evidence.capture.activities)
    return Measurement(unread / every, {"unread": unread, "every": every})


def opaque_graphs(evidence: CaptureEvidence) -> Measurement:
    """Measure the fraction of GPU time in graphs recorded without their nodes."""
    rows = needs.opaque_graph_rows(evidence)
    figures = {"graphs": len(rows), "work_share": needs.time_share(evidence, rows)}
    return Measurement(needs.time_share(evidence, rows), figures)


def no_api_record(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of the time of kernels and graphs without an API call."""
    work = evidence.is_kind(frames.KERNEL, frames.GRAPH)
    if not work.any():
        return None
    is_lost = work & (evidence.attributed.attribution.reason == NO_LAUNCH)
    spent, total = (int(evidence.time[rows].sum()) for rows in (is_lost, work))
    share = spent / max(total, 1)
    return Measurement(share, {"kernels": int(is_lost.sum()), "work_share": share})


def _computes(evidence: CaptureEvidence) -> bool:
    return bool(evidence.is_kind(frames.KERNEL, frames.GRAPH).any())


def no_ops(evidence: CaptureEvidence) -> Measurement | None:
    """Measure whether work ran without any range that could own it."""
    if not _computes(evidence):
        return None
    has_none = not (evidence.attributed.op != NONE).any()
    return Measurement(float(has_none), {})


def outside_ops(evidence: CaptureEvidence) -> Measurement:
    """Measure the fraction of GPU time launched outside of ops."""
    rows = needs.rows_outside_ops(evidence)
    share = needs.time_share(evidence, rows)
    return Measurement(share, {"work_share": share})


def open_ranges(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of ranges that never ended."""
    ranges = evidence.capture.ranges
    if not len(ranges):
        return None
    open_count = int(ranges.open.sum())
    return Measurement(open_count / len(ranges), {"cut": open_count, "ranges": len(ranges)})


IMPOSSIBLE = "impossible times, before the session or with the end before the start"


def unlawful_times(evidence: CaptureEvidence) -> Measurement:
    """Measure the fraction of rows with impossible times."""
    values = {name: len(rows) for name, rows in validity.wrong_times(evidence.attributed).items()}
    row_count = sum(len(getattr(evidence.capture, name)) for name in values)
    wrong_count = sum(values.values())
    kinds = ", ".join(f"{count} {name}" for name, count in values.items() if count)
    text = f"{IMPOSSIBLE}: {kinds}"
    return Measurement(wrong_count / max(row_count, 1), {}, text)


def skewed_clocks(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of work that ran before its launch, as the clocks differ."""
    launch = evidence.attributed.attribution.launch
    rows = np.flatnonzero((launch != NONE) & (evidence.time > 0))
    if not len(rows):
        return None
    start = evidence.capture.activities.start[rows]
    lead = evidence.capture.launches.start[launch[rows]] - start
    early_count, maximum = int((lead > 0).sum()), int(lead.max())
    figures = {"early": early_count, "work": len(rows), "most_ns": max(maximum, 0)}
    return Measurement(early_count / len(rows), figures)


def no_gpu_names(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of used devices without a name."""
    devices = evidence.capture.devices
    if not len(devices):
        return None
    unnamed = sum(not name for name in devices.name)
    return Measurement(unnamed / len(devices), {"nameless": unnamed, "devices": len(devices)})


CONTENT_REASONS = (
    Check(
        name="no-kernels",
        title="CUDA calls without any kernel",
        scale=Scale(unit=COUNT, free=0, full=1, points=80),
        text="{calls} API calls and no kernel",
        remedy="Record the part that computes, to its end. bridge doctor without a report checks this machine.",
        find=no_kernels,
        needs=("calls",),
        timeline=False,
    ),
    Check(
        name="unread-events",
        title="events of a device that are of kinds that are not read",
        scale=Scale(unit=SHARE, free=0.0, full=0.5, points=40),
        text="{unread} of {every} events of a device are of kinds that are not read",
        remedy="Times of this device lack these events: the warning of the report names their kinds.",
        find=unread_events,
    ),
    Check(
        name="opaque-graphs",
        title="GPU time in CUDA graphs that were recorded as a whole",
        scale=Scale(unit=SHARE, free=0.0, full=1.0, points=40),
        text="{work_share} of GPU time is in {graphs} graphs recorded as a whole",
        remedy="Record the nodes of graphs with nsys profile --cuda-graph-trace=node.",
        find=opaque_graphs,
        needs=("work",),
        timeline=False,
    ),
    Check(
        name="no-api-record",
        title="time of kernels and graphs without an API call",
        scale=Scale(unit=SHARE, free=0.005, full=0.5, points=30),
        text="{kernels} kernels, {work_share} of their time, have no API call that leads to an op",
        remedy=f"Record API calls with {needs.TRACE}."
        " Wait for the GPU (torch.cuda.synchronize()) before the capture begins.",
        find=no_api_record,
    ),
    Check(
        name="no-ops",
        title="work without any range",
        scale=Scale(unit=COUNT, free=0, full=1, points=30),
        text="no ranges: no work can be attributed to an op",
        remedy=f"Record ranges with {needs.ANNOTATE}. With PyTorch's profiler, use ProfilerActivity.CPU.",
        find=no_ops,
    ),
    Check(
        name="outside-ops",
        title="GPU time launched outside any op, where there are ops",
        scale=Scale(unit=SHARE, free=needs.MIN_OUTSIDE, full=1.0, points=30),
        text="{work_share} of GPU time was launched outside any op",
        remedy="Annotate this work with @nvtx_op or bridge.torch.annotate(model). The command why explains an example.",
        find=outside_ops,
        needs=("work", "ops"),
        timeline=False,
    ),
    Check(
        name="open-ranges",
        title="ranges that never ended",
        scale=Scale(unit=SHARE, free=0.0, full=0.1, points=10),
        text="{cut} of {ranges} ranges never ended: they reach to the end of the capture",
        remedy="End the capture between steps with bridge.profile(…) and .step(), and let the program end by itself.",
        find=open_ranges,
    ),
    Check(
        name="unlawful-times",
        title="ranges, calls and activities that begin before the session or end before they start",
        scale=Scale(unit=SHARE, free=0.0, full=0.05, points=15),
        text=IMPOSSIBLE,
        remedy="Capture again. If the times are still impossible, use another nsys or driver.",
        find=unlawful_times,
    ),
    Check(
        name="skewed-clocks",
        title="activities that began before the call that launched them",
        scale=Scale(unit=SHARE, free=0.001, full=0.2, points=15),
        text="{early} of {work} activities began before the call that launched them, by up to {most_ns}",
        remedy="Do not trust idle times, gaps and waits. Capture again with a newer nsys or driver.",
        find=skewed_clocks,
        timeline=False,
    ),
    Check(
        name="no-gpu-names",
        title="GPUs without a known name",
        scale=Scale(unit=SHARE, free=0.0, full=1.0, points=5),
        text="the names of {nameless} of {devices} GPUs are unknown: no peaks, no occupancy",
        remedy=f"Use {needs.GPU_DESCRIPTION}, or set the peaks with --peak-tflops and --peak-gbs.",
        find=no_gpu_names,
    ),
)
