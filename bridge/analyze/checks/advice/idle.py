"""Rules about idle GPUs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    NSYS,
    TENSORBOARD,
    Finding,
    LostTime,
)
from bridge.analyze.checks.check import SYMPTOM, Check
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.core.groups import sums, texts
from bridge.analyze.run.causes.gaps import WORDS, gaps_between_work
from bridge.analyze.run.causes.operating_system import HostTimes
from bridge.analyze.run.causes.tables import gap_table
from bridge.analyze.run.concurrency.overlap import running
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints

MIN_BUSY = 0.5  # of the run, or of an interval; below, a GPU is used too little
INTERVALS = 30  # into which the span of a GPU, from its first work to its last, is divided
LONG_GAP_NS = 500_000_000
LONG_GAP_SHARE = 0.05  # of the span, if that is shorter
MIN_LAUNCHING = 0.05  # of the span, idle for launching
MAX_LAUNCH_NS = 100_000  # longer gaps have other causes than a launch
HOST_CAUSES = [
    WORDS.index(cause) for cause in ("host code", "host code outside ops", "other CUDA calls")
]
MIN_NAMED = 0.5  # of the time of a cause, to be called by the op that has it
HOST_SHARE = 0.05  # of the span
GRAPH_LAUNCH_NS = 1_500  # between two kernels of a CUDA graph
SHORT_NS = 5_000
MIN_KERNELS = 100
MIN_SHORT = 0.5  # of the kernels


def low_use(evidence: Evidence) -> Finding | None:
    """Find GPUs that are busy less than half of the run."""
    low = evidence.gpus[evidence.gpus["idle_ns"] > (1 - MIN_BUSY) * evidence.gpus["run_ns"]]
    if low.empty:
        return None
    table = low.sort_values("busy_share", ignore_index=True, kind="stable")
    table = table[["device", "busy_share", "busy_ns", "idle_ns", "run_ns"]]
    worst = table.iloc[0]
    figures = {
        "device": str(worst["device"]),
        "busy_share": float(worst["busy_share"]),
        "run_ns": int(worst["run_ns"]),
    }
    gaps = evidence.idle.gaps
    lost = np.flatnonzero(np.isin(texts(gaps.devices)[gaps.device], table["device"]))
    return Finding(
        figures, table, int(table["idle_ns"].max()), lost=LostTime(lost, gaps.length[lost])
    )


def low_intervals(evidence: Evidence) -> Finding | None:
    """Find intervals, a thirtieth of a GPU's span each, in which it is busy less than half."""
    devices, rows = evidence.devices, np.flatnonzero(evidence.counted)
    work = running(evidence.attributed, counted=True)
    parts = []
    low_gpus = evidence.gpus.loc[evidence.gpus["busy_share"] < MIN_BUSY, "device"].tolist()
    for gpu in np.unique(devices.gpu[rows]).tolist():  # one iteration per GPU
        if devices.names[gpu] in low_gpus:
            continue  # the rule about low use applies
        rows_of_gpu = rows[devices.gpu[rows] == gpu]
        first = int(frames.ints(evidence.capture.activities, "start")[rows_of_gpu].min())
        last = int(evidence.attributed.end[rows_of_gpu].max())
        edges = first + (last - first) * np.arange(INTERVALS + 1) // INTERVALS
        busy = work.within(np.full(INTERVALS, gpu), edges[:-1], edges[1:])
        low = (busy < MIN_BUSY * np.diff(edges)) & (np.diff(edges) > 0)
        edges -= evidence.capture.began
        parts.append(_merge_intervals(devices.names[gpu], edges, busy, low))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if table.empty:
        return None
    table = table.sort_values("idle_ns", ascending=False, ignore_index=True, kind="stable")
    row = table.iloc[0]
    figures = {
        "stretches": len(table),
        "device": str(row["device"]),
        "length_ns": int(row["length_ns"]),
        "busy_share": row["busy_ns"] / row["length_ns"],
    }
    ceiling = int(table.groupby("device")["idle_ns"].sum().max())
    return Finding(figures, table, ceiling, lost=_gaps_within(evidence, table))


def _gaps_within(evidence: Evidence, intervals: pd.DataFrame) -> LostTime:
    """Return the parts of gaps that lie within some intervals of their GPU."""
    gaps = evidence.idle.gaps
    device = texts(gaps.devices)[gaps.device]
    inside = np.zeros(len(gaps), np.int64)
    starts, lengths = (frames.ints(intervals, column) for column in ("start_ns", "length_ns"))
    starts = starts + evidence.capture.began
    # At most `INTERVALS` per GPU.
    for name, start, end in zip(intervals["device"], starts, starts + lengths, strict=True):
        part = np.minimum(gaps.end, end) - np.maximum(gaps.start, start)
        inside += np.where(device == name, np.maximum(part, 0), 0)
    rows = np.flatnonzero(inside)
    return LostTime(rows, inside[rows])


def _merge_intervals(device: str, edges: Ints, spent: Ints, low: Flags) -> pd.DataFrame:
    """Return one row for each run of adjacent intervals."""
    edge = np.flatnonzero(np.diff(np.concatenate(([0], low.astype(np.int8), [0]))))
    first, last = edge[::2], edge[1::2]
    busy = np.concatenate(([0], np.cumsum(spent)))
    length, busy_time = edges[last] - edges[first], busy[last] - busy[first]
    return pd.DataFrame(
        {
            "device": texts([device] * len(first)),
            "start_ns": edges[first],
            "length_ns": length,
            "busy_ns": busy_time,
            "idle_ns": length - busy_time,
        }
    )


def long_gaps(evidence: Evidence) -> Finding | None:
    """Find long gaps of a GPU, with what the host did meanwhile."""
    limit = min(LONG_GAP_NS, int(LONG_GAP_SHARE * evidence.span_ns))
    if not limit:
        return None
    table = gap_table(evidence.attributed, gaps_between_work(evidence.attributed, limit))
    if table.empty:
        return None
    table = table.sort_values("gap_ns", ascending=False, ignore_index=True, kind="stable")
    table["start_ns"] -= evidence.capture.began  # as --from and --to count
    row = table.iloc[0]
    figures = {
        "gaps": len(table),
        "limit_ns": limit,
        "longest_ns": int(row["gap_ns"]),
        "cause": " in ".join(filter(None, (row["cause"], row["op"]))),
    }
    gaps = evidence.idle.gaps
    rows = np.flatnonzero(gaps.length > limit)
    ceiling = int(table.groupby("device")["gap_ns"].sum().max())
    return Finding(figures, table, ceiling, lost=LostTime(rows, gaps.length[rows]))


def launch_bound(evidence: Evidence) -> Finding | None:
    """Find ops for which launching keeps the GPU idle longer than their kernels run."""
    attributed, launching = evidence.attributed, _launch_idle(evidence)
    many_ops = len(attributed.ops) + 1
    rows_in_ops = np.flatnonzero(evidence.computing & (attributed.node != NONE))
    op = attributed.activity_op[rows_in_ops]
    idle_of_op, work_of_op = (
        sums(op, launching[rows_in_ops], many_ops),
        sums(op, evidence.time[rows_in_ops], many_ops),
    )
    rows = rows_in_ops[(idle_of_op > work_of_op)[op] & (launching[rows_in_ops] > 0)]
    total = evidence.max_over_gpus(rows, launching[rows])
    if total <= MIN_LAUNCHING * evidence.span_ns:
        return None
    figures = {
        "ops": len(np.unique(attributed.activity_op[rows])),
        "idle_ns": total,
        "idle_share": total / evidence.span_ns,
    }
    saving = np.maximum(launching[rows] - GRAPH_LAUNCH_NS, 0)
    table = rule.activity_table(evidence, rows, launching[rows])
    lost = rule.idle_before(evidence, rows, launching[rows])
    return Finding(figures, table, total, evidence.max_over_gpus(rows, saving), lost)


def _launch_idle(evidence: Evidence) -> Ints:
    """Return the idle time for launching before each activity, 0 in gaps longer than a launch."""
    before, starving = evidence.idle_before
    return np.where(before + starving <= MAX_LAUNCH_NS, before, 0)


def host_bound(evidence: Evidence) -> Finding | None:
    """Find gaps longer than a launch in which the host works on something else."""
    idle = evidence.idle
    is_selected = np.isin(idle.cause, HOST_CAUSES) & (idle.gaps.length[idle.gap] > MAX_LAUNCH_NS)
    length, gap = idle.length[is_selected], idle.gap[is_selected]
    by_gpu = sums(idle.gaps.device[gap], length, len(idle.gaps.devices))
    worst = int(np.argmax(by_gpu)) if len(by_gpu) else 0
    total, span = int(by_gpu.max(initial=0)), evidence.span_of(worst) if len(by_gpu) else 0
    if not total or total <= HOST_SHARE * evidence.span_ns:
        return None
    table = rule.group_rows(
        {
            "cause": (idle.cause[is_selected], WORDS),
            "op": (idle.op[is_selected], folded_ops(evidence.attributed.ops)),
        },
        length,
        idle.gaps.ended_by[gap],
    )
    lost = rule.idle_pieces(evidence, is_selected)
    is_named = bool(table["op"].iloc[0]) and table["total_ns"].iloc[0] > MIN_NAMED * length.sum()
    cause = " in ".join(filter(None, (table["cause"].iloc[0], table["op"].iloc[0])))
    if call := _main_system_call(evidence, is_selected):
        cause, is_named = f"{cause}, in {call} of the operating system", True
    figures = {
        "gaps": len(np.unique(gap[idle.gaps.device[gap] == worst])),
        "idle_ns": total,
        "idle_share": total / max(1, span),
        "cause": cause,
    }
    return Finding(figures, table, total, lost=lost, is_named=is_named)


def _main_system_call(evidence: Evidence, rows: Flags) -> str:
    """Return the call of the operating system in which the host is for most of some idle time, '' if there is none."""
    host = HostTimes.of(evidence.attributed, evidence.idle.take(rows).pieces)
    time = sums(host.name, host.system.time, len(host.names))
    if not len(time) or time.max() <= MIN_NAMED * evidence.idle.length[rows].sum():
        return ""
    return host.names[int(time.argmax())]


def short_kernels(evidence: Evidence) -> Finding | None:
    """Find kernels most of which are too short for their launch."""
    kernels = np.flatnonzero(evidence.computing)
    rows = kernels[evidence.time[kernels] < SHORT_NS]
    if len(kernels) < MIN_KERNELS or len(rows) <= MIN_SHORT * len(kernels):
        return None
    idle_before = _launch_idle(evidence)[rows]
    figures = {
        "short_share": len(rows) / len(kernels),
        "kernels": len(kernels),
        "limit_ns": SHORT_NS,
        "idle_ns": evidence.max_over_gpus(rows, idle_before),
    }
    ceiling = evidence.max_over_gpus(rows, idle_before) + evidence.max_work_over_gpus(rows)
    return Finding(
        figures,
        rule.activity_table(evidence, rows),
        ceiling,
        evidence.max_over_gpus(rows, idle_before),
        rule.idle_before(evidence, rows, idle_before),
    )


RULES = (
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
    Check(
        name="low-use-stretches",
        title="Phases of low GPU utilization",
        when=f"in one of {INTERVALS} equal parts of the time from its first work to its last a GPU is busy less than {MIN_BUSY:.0%}, and of the run more",
        text="phases of low utilization: {stretches}; in the one with the most idle time {device} is busy {busy_share} of {length_ns}",
        remedy="see what the host did meanwhile (bridge report REPORT --by gap); --from and --to limit a table or a trace to such a phase",
        source=NSYS,
        needs=("work",),
        find=low_intervals,
        certainty=SYMPTOM,
    ),
    Check(
        name="long-gaps",
        title="Long GPU idle gaps",
        when=f"a gap is longer than {LONG_GAP_NS / 1e9} s or {LONG_GAP_SHARE:.0%} of the longest time from the first work of a GPU to its last, whichever is less",
        text="gaps longer than {limit_ns}: {gaps}; the longest takes {longest_ns}: {cause}",
        remedy="see what the host did in each gap (bridge report REPORT --by gap)",
        source=NSYS,
        needs=("work", "calls"),
        find=long_gaps,
        certainty=SYMPTOM,
    ),
    Check(
        name="launch-bound",
        title="Launch-bound: the host launches work more slowly than the GPU runs it",
        when=f"idle time of at most {MAX_LAUNCH_NS / 1e3:.0f} us before its kernels, for launching, is longer than the kernels of an op; of all such ops more than {MIN_LAUNCHING:.0%} of the time from its first work to its last",
        text="ops that run for less time than the GPU waits for their launches: {ops}; these waits take {idle_ns}, {idle_share} of the time from the GPU's first work to its last",
        remedy="launch less often: CUDA graphs (torch.cuda.graph, torch.compile(mode='reduce-overhead')), fused ops, larger batches",
        estimate="the idle time before their work, less 1.5 us each, which a CUDA graph takes",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "ops"),
        find=launch_bound,
        remedy_elsewhere="launch less often: CUDA graphs, fewer and larger kernels, a loop on the GPU instead of on the host",
    ),
    Check(
        name="host-bound",
        title="CPU-bound: the GPU waits while the host runs other code",
        when=f"gaps over {MAX_LAUNCH_NS / 1e3:.0f} us, in which the host is in an op, in none or in an API call that does not wait, are more than {HOST_SHARE:.0%} of the time from the GPU's first work to its last",
        text="in {gaps} gaps the host runs other code, for {idle_ns} in total, {idle_share} of the time from the GPU's first work to its last; most of it: {cause}",
        remedy="profile this host code; move it to other processes, or run it while the GPU has enough work queued",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls"),
        find=host_bound,
    ),
    Check(
        name="short-kernels",
        title="Most kernels are short",
        when=f"of at least {MIN_KERNELS} kernels more than {MIN_SHORT:.0%} take less than {SHORT_NS / 1e3:.0f} us",
        text="{short_share} of {kernels} kernels take less than {limit_ns}; the GPU waits {idle_ns} for their launches",
        remedy="fuse them (torch.compile, fused optimizers and norms), or launch them together as a CUDA graph",
        estimate="the idle time that the GPU waits for their launches",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "calls"),
        find=short_kernels,
        remedy_elsewhere="fuse them, or launch them together as a CUDA graph",
    ),
)
