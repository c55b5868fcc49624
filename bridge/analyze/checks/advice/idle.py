"""Rules about launches, small kernels, streams, and GPUs with little work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    TENSORBOARD,
    Finding,
)
from bridge.analyze.checks.check import SYMPTOM, Check
from bridge.analyze.core.kinds import LAUNCHING, calls_matching
from bridge.analyze.run import interventions
from bridge.analyze.run.causes.host_timeline import Cover
from bridge.analyze.run.causes.operating_system import stacks_of
from bridge.analyze.run.critical.order import NULL, stream_kinds
from bridge.analyze.run.critical.retiming import Draft
from bridge.analyze.run.critical.run import API, HOST, KIND, LATENCY
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Flags, Ints, order_by

MIN_BUSY = 0.5  # of the run, or of an interval; below, a GPU is used too little
MIN_ANNOTATING = 0.01  # of the run, on the critical path in annotations
MIN_LAUNCHING = 0.05  # of the run, on the critical path in launches
MOST_MEAN_NS = 60_000  # of kernels; longer ones take more time than their launches
SHORT_NS = 15_000
MIN_ROW = 10  # kernels of one name that follow one another, to be called many
FUSED = 0.3  # of the time of small kernels, which one kernel takes for all of their work
MOST = 3


def low_use(evidence: Evidence) -> Finding | None:
    """Find GPUs that are busy less than half of the run."""
    low = evidence.gpus[evidence.gpus["idle_ns"] > (1 - MIN_BUSY) * evidence.gpus["run_ns"]]
    if not len(low):
        return None
    table = low.sort_values("busy_share")
    table = table[["device", "busy_share", "busy_ns", "idle_ns", "run_ns"]]
    worst = table.row(0)
    figures = {
        "device": str(worst["device"]),
        "busy_share": float(worst["busy_share"]),
        "run_ns": int(worst["run_ns"]),
    }
    return Finding(figures, table)


def _kernels_in_iterations(evidence: Evidence) -> Ints:
    """Return the places of the kernels of iterations that have a launch, by thread and launch."""
    run = evidence.run
    places = interventions.work_places(run, run.computing & evidence.counted)
    places = places[run.work.launch[places] != NONE]
    result: Ints = places[evidence.in_iterations(run.device.end[places])]
    return result


def launch_bound(evidence: Evidence) -> Finding | None:
    """Find a run that waits for launches of kernels, and the code around them."""
    run = evidence.run
    path = run.path[evidence.in_iterations(run.path)]
    kind, delay = run.kind_of(path), run.own_delay(path)
    here = np.where(path >= run.hosts, path - run.hosts, NONE)
    launching = np.append(calls_matching(evidence.attributed, LAUNCHING), False)
    is_launch = (kind == KIND[API]) & launching[lookup(run.host.call, here)]
    is_launch |= kind == KIND[LATENCY]
    is_code = (kind == KIND[HOST]) & evidence.launching_ops[
        lookup(evidence.own_op, lookup(run.host.node, here))
    ]
    waited = int(delay[is_launch | is_code].sum())
    places = _kernels_in_iterations(evidence)
    mean = int((run.work.end - run.work.start)[places].mean()) if len(places) else 0
    if waited <= MIN_LAUNCHING * run.span or not len(places) or mean > MOST_MEAN_NS:
        return None
    figures = {
        "kernels": len(places),
        "call": _usual_call(evidence, run.work.launch[places]),
        "mean_ns": mean,
        "path_ns": waited,
        "path_share": waited / run.span,
    }
    table = rule.activity_table(evidence, run.work.row[places])
    return Finding(figures, table, change=interventions.as_graph(run, places))


def _usual_call(evidence: Evidence, calls: Ints) -> str:
    """Return the name that most of some API calls have."""
    names = evidence.capture.launches.name
    usual = int(np.bincount(names.codes[calls] + 1).argmax()) - 1
    return str(names.texts[usual]) if usual != NONE else "calls without a name"


def short_kernels(evidence: Evidence) -> Iterator[Finding]:
    """Yield small kernels of one name of which many follow one another: one kernel could do their work."""
    run, attribution = evidence.run, evidence.attributed.attribution
    places = _kernels_in_iterations(evidence)
    rows = run.work.row[places]
    name = evidence.attributed.activity_name.codes[rows]
    node = attribution.node[rows]
    is_first = np.ones(len(places), bool)
    is_first[1:] = (
        (places[1:] != places[:-1] + 1) | (name[1:] != name[:-1]) | (node[1:] != node[:-1])
    )
    row = np.cumsum(is_first) - 1
    length = np.bincount(row, minlength=1)
    small = evidence.time[rows] < SHORT_NS
    many = (length >= MIN_ROW)[row] & small
    names = np.unique(name[many])
    total = np.array([int(many[name == one].sum()) for one in names.tolist()], np.int64)
    for one in names[order_by(-total)][:MOST].tolist():
        selected = many & (name == one)
        yield _fused(evidence, places[selected], is_first[selected])


def _fused(evidence: Evidence, places: Ints, is_first: Flags) -> Finding:
    run = evidence.run
    rest = places[~is_first]
    ends, starts = run.device.end[places], run.device.start[rest]
    calls = np.zeros(len(run.work.call_start), bool)
    calls[run.work.launch[rest]] = True
    points = interventions.call_points(run, calls)
    code = interventions.code_between(run, calls)
    share = float(is_first.mean())

    def change(draft: Draft) -> None:
        draft.scale(ends, FUSED)
        draft.remove(starts)
        draft.remove(points)
        draft.scale(code, share)

    def limit(draft: Draft) -> None:
        change(draft)
        draft.remove(ends)

    rows = run.work.row[places]
    figures = {
        "kernel": evidence.attributed.activity_name[rows[0]],
        "kernels": len(rows),
        "kernels_ns": int(evidence.time[rows].sum()),
        "mean_ns": int(evidence.time[rows].mean()),
    }
    return Finding(figures, rule.activity_table(evidence, rows), change=change, limit=limit)


def default_stream(evidence: Evidence) -> Finding | None:
    """Find work in different streams that waits for the legacy default stream, or in it for other streams."""
    run = evidence.run
    change, waiting = interventions.without_default_stream(run)
    if not len(waiting):
        return None
    rows = run.work.row[waiting]
    figures = {"activities": len(rows), "stream": int(_null_stream(evidence))}
    return Finding(figures, rule.activity_table(evidence, rows), change=change)


def _null_stream(evidence: Evidence) -> int:
    kinds = stream_kinds(evidence.run.work)
    return int(evidence.run.work.column("stream")[kinds == NULL][0])


def profiler_overhead(evidence: Evidence) -> Iterator[Finding]:
    """Yield the time in which the profiler itself kept threads from going on: within iterations, and once."""
    run, overhead = evidence.run, evidence.capture.overhead
    stack = stacks_of(evidence.attributed, overhead)
    rows = np.flatnonzero(stack != NONE)
    if not len(rows):
        return
    offset = run.work.offset[overhead.report]
    start, end = ((overhead[c] + offset)[rows] for c in ("start", "end"))
    end = np.maximum(start, end)
    points = run.hosts + np.flatnonzero(run.graph.delay[run.hosts : run.hosts + len(run.host.time)])
    time, delay = run.graph.time[points], run.graph.delay[points]
    thread = run.host.stack[points - run.hosts].astype(np.int64)
    lost = Cover.of(stack[rows], start, end).within(thread, time - delay, time)
    points, lost = points[lost > 0], lost[lost > 0]
    each = evidence.in_iterations(points)
    for once in (False, True):
        part = points[each != once], lost[each != once]
        inside = evidence.times_in_iterations(start) != once
        if len(part[0]) and inside.any():
            yield _of_overhead(evidence, part, rows[inside], (end - start)[inside], once=once)


def _of_overhead(
    evidence: Evidence, lost: tuple[Ints, Ints], rows: Ints, length: Ints, *, once: bool
) -> Finding:
    points, ns = lost
    name = evidence.capture.overhead.name
    names = name.codes[rows], list(map(str, name.texts))
    table = rule.group_rows({"overhead": names}, length, rows)
    figures = {
        "times": len(rows),
        "overhead_ns": int(ns.sum()),
        "main": table["overhead"][0],
    }

    def change(draft: Draft) -> None:
        draft.shorten(points, ns)

    return Finding(figures, table, change=None if once else change, limit=change, once=once)


def slow_annotations(evidence: Evidence) -> Finding | None:
    """Find the time that annotations took of host code on the critical path."""
    run = evidence.run
    if run.annotating is None:
        return None
    points = np.flatnonzero(run.annotating)
    path_ns = int(run.annotating[run.path].sum())
    if path_ns < MIN_ANNOTATING * run.span:
        return None
    node = run.host.node[points - run.hosts].astype(np.int64)
    example = lookup(evidence.attributed.attribution.nesting.range, node)
    columns = rule.op_and_path(evidence, node)
    figures = {
        "annotations_ns": int(run.annotating.sum()),
        "path_ns": path_ns,
        "path_share": path_ns / max(1, run.span),
    }
    table = rule.group_rows(columns, run.annotating[points], example)
    return Finding(figures, table, change=Draft.remove_annotations)


RULES = (
    Check(
        name="launch-bound",
        title="Launch-bound: the run waits for launches of kernels",
        when=f"launches of kernels, their latency and the code of ops that launch are more than {MIN_LAUNCHING:.0%} of the run on the critical path of iterations, and kernels take {MOST_MEAN_NS / 1e3:.0f} us at most in the mean",
        text="the run waits for launches for {path_ns}, {path_share} of it; {kernels} kernels, launched by {call} for the most part, take {mean_ns} each",
        remedy="launch less often: CUDA graphs (torch.cuda.graph, torch.compile(mode='reduce-overhead')), fused ops, larger batches",
        estimate="the run with the kernels of each iteration as a CUDA graph, 1 us apart",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=launch_bound,
        remedy_elsewhere="launch less often: CUDA graphs, fewer and larger kernels, a loop on the GPU instead of on the host",
    ),
    Check(
        name="short-kernels",
        title="Many small kernels follow one another",
        when=f"{MIN_ROW} kernels of one name or more, each shorter than {SHORT_NS / 1e3:.0f} us, follow one another in a call of an op",
        text="{kernel} runs {kernels} times, {mean_ns} each, {kernels_ns} in all",
        remedy="fuse them (torch.compile, fused or foreach optimizers and norms), or launch them together as a CUDA graph",
        estimate=f"the run with one launch in place of each row, and {FUSED:.0%} of the time of these kernels",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "calls", "graph"),
        find=short_kernels,
        remedy_elsewhere="fuse them, or launch them together as a CUDA graph",
    ),
    Check(
        name="default-stream",
        title="Streams take turns because of the legacy default stream",
        when="work in the legacy default stream waits for blocking streams, or they for it",
        text="work waits for the legacy default stream (stream {stream}), or in it for others, {activities} times",
        remedy="create streams with cudaStreamNonBlocking, and give the work of the default stream one of its own (or compile with --default-stream per-thread)",
        estimate="the run without these waits",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=default_stream,
    ),
    Check(
        name="profiler-overhead",
        title="The profiler slows the program down",
        when="the profiler's own work on a thread is on the critical path",
        text="the profiler works on the program's threads for {overhead_ns}, {times} times; most of it: {main}",
        remedy="nothing in the program: leave this time out of what you compare; trace less (bridge doctor REPORT), or a shorter part",
        estimate="the run without the profiler's work",
        source=NSIGHT_BRIDGE,
        needs=("work", "graph"),
        find=profiler_overhead,
    ),
    Check(
        name="annotations",
        title="Annotations slow the program down",
        when=f"ranges of modules take more than {MIN_ANNOTATING:.0%} of the run on the critical path",
        text="annotations of modules take {annotations_ns}, of which {path_ns} are on the critical path, {path_share} of the run",
        remedy="nothing in the program: leave this time out of what you compare; annotate less (--no-ops, bridge.torch.annotate of a part of the model)",
        estimate="the run without these ranges, at the time for each that the process measured",
        source=NSIGHT_BRIDGE,
        needs=("work", "graph"),
        find=slow_annotations,
    ),
    Check(
        name="low-gpu-use",
        title="Low GPU utilization",
        when=f"a GPU is busy less than {MIN_BUSY:.0%} of the run",
        text="{device} is busy {busy_share} of the run, {run_ns}",
        remedy="find out what the GPU waits for (bridge report REPORT --by idle); larger batches give it more work at a time",
        source=TENSORBOARD,
        needs=("work",),
        find=low_use,
        remedy_elsewhere="find out what the GPU waits for (bridge report REPORT --by idle)",
        certainty=SYMPTOM,
    ),
)
