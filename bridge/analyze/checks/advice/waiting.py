"""Rules about waiting for data, for a compiler and for other ranks."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    TENSORBOARD,
    TORCH_TIDY,
    Finding,
    LostTime,
)
from bridge.analyze.checks.check import Check
from bridge.analyze.core.groups import sums
from bridge.analyze.core.kinds import is_compilation, is_data_loading
from bridge.analyze.run.causes.gaps import WORDS
from bridge.analyze.run.causes.host_timeline import IN_COMPILER, call_states
from bridge.analyze.run.concurrency.collectives import by_collective, waits
from bridge.analyze.run.concurrency.overlap import exposed_times
from bridge.analyze.run.steps import WARM_UP, by_step
from bridge.importers import frames
from bridge.join.arrays import Flags, Ints

MIN_LOADING = 0.05  # of the time of steps, or from the first work of a GPU to its last
SINGLE_PROCESS = re.compile(r"enumerate\(DataLoader\)#_SingleProcessDataLoaderIter.*")


def _idle_time(evidence: Evidence, *causes: str) -> int:
    """Return the maximum over GPUs of the idle time with these causes."""
    idle = evidence.idle
    is_selected = np.isin(idle.cause, [WORDS.index(cause) for cause in causes])
    device = idle.gaps.device[idle.gap[is_selected]]
    return int(sums(device, idle.length[is_selected], len(idle.gaps.devices)).max(initial=0))


def _idle_lost(evidence: Evidence, *causes: str) -> LostTime:
    """Return the idle time with these causes."""
    return rule.idle_pieces(
        evidence, np.isin(evidence.idle.cause, [WORDS.index(cause) for cause in causes])
    )


def _outermost_times(evidence: Evidence, nodes: Flags) -> tuple[Ints, Ints]:
    """Return the outermost of these nodes, and how long each was open during the run."""
    rows = np.flatnonzero(evidence.outermost(nodes))
    spent = evidence.times_in_run(rows)
    return rows[spent > 0], spent[spent > 0]


def waits_for_data(evidence: Evidence) -> Finding | None:
    """Find data loading that keeps GPUs idle, or takes more than a twentieth of the steps."""
    loading = (
        is_data_loading(evidence.attributed)[evidence.attributed.node_op]
        & evidence.attributed.nodes_in_direction
    )
    rows, spent = _outermost_times(evidence, loading)
    if not len(rows):
        return None
    thread = evidence.attributed.attribution.nesting.stack[rows]
    total, idle = evidence.max_over_threads(thread, spent), _idle_time(evidence, "data loading")
    loading_share = _loading_share(evidence)
    if max(loading_share, idle / max(1, evidence.span_ns)) <= MIN_LOADING:
        return None
    figures = {
        "loading_ns": total,
        "idle_ns": idle,
        "idle_share": idle / max(1, evidence.span_ns),
        "steps_share": loading_share,
    }
    table, lost = rule.node_table(evidence, rows, spent), _idle_lost(evidence, "data loading")
    return Finding(figures, table, max(total, idle), idle, lost)


def _loading_share(evidence: Evidence) -> float:
    """Return the fraction of the steps, and the time between them, that waits for data."""
    if not len(evidence.attributed.iterations):
        return 0.0
    steps = by_step(evidence.attributed)
    waited = steps["dataloader_ns"].sum() + steps["between_dataloader_ns"].sum()
    return float(waited / max(1, steps["wall_ns"].sum() + steps["between_ns"].sum()))


def single_process_loader(evidence: Evidence) -> Finding | None:
    """Find a DataLoader of PyTorch that works in the process of the program."""
    rows, spent = _outermost_times(
        evidence, evidence.nodes_with_op(SINGLE_PROCESS.fullmatch, anywhere=True)
    )
    if not len(rows):
        return None
    thread = evidence.attributed.attribution.nesting.stack[rows]
    idle = _idle_time(evidence, "data loading")
    total = evidence.max_over_threads(thread, spent)
    figures = {"batches": len(rows), "loading_ns": total}
    table, lost = rule.node_table(evidence, rows, spent), _idle_lost(evidence, "data loading")
    return Finding(figures, table, total, min(idle, total), lost)


def recompilation(evidence: Evidence) -> Finding | None:
    """Find compilation and module loading in steps after the first ones."""
    attributed = evidence.attributed
    steps = attributed.iterations
    calls = np.flatnonzero((call_states(attributed) == IN_COMPILER) & attributed.counted_launches)
    ranges = np.flatnonzero(
        evidence.outermost(is_compilation(attributed)[attributed.node_op] & attributed.listed)
    )
    if not len(calls) + len(ranges):
        return None
    is_settled, nesting = np.append(_is_settled(evidence), False), attributed.attribution.nesting
    row = nesting.range[ranges]
    step = _step_at(
        evidence,
        evidence.capture.launches,
        calls,
        frames.ints(evidence.capture.launches, "start")[calls],
    )
    calls = calls[is_settled[step]]
    step = _step_at(evidence, evidence.capture.ranges, row, nesting.start[ranges])
    ranges = ranges[is_settled[step]]
    if not len(calls) + len(ranges):
        return None
    length = (nesting.end - nesting.start)[ranges]
    table = (
        rule.node_table(evidence, ranges, length)
        if len(ranges)
        else rule.call_table(evidence, calls)
    )
    threads = nesting.stack[ranges] if len(ranges) else attributed.attribution.stack[calls]
    total = evidence.max_over_threads(threads, length if len(ranges) else evidence.call_time[calls])
    figures = {
        "compilations": len(ranges) or len(calls),
        "steps": len(steps),
        "compiling_ns": total,
    }
    saving = min(total, _idle_time(evidence, "compilation"))
    return Finding(figures, table, total, saving, _idle_lost(evidence, "compilation"))


def _is_settled(evidence: Evidence) -> Flags:
    """Return whether each step is after the first two of its process, and not warm-up."""
    steps, table = evidence.attributed.iterations, by_step(evidence.attributed)
    result = np.zeros(len(steps), bool)
    for first, last in steps.by_process():
        result[first + 2 : last] = True
    if len(table) == len(steps):
        result &= table["state"].to_numpy() != WARM_UP
    return result


def _step_at(evidence: Evidence, table: pd.DataFrame, rows: Ints, time: Ints) -> Ints:
    report, process = (frames.ints(table, c)[rows] for c in ("report", "process"))
    return evidence.attributed.iterations.at(report, process, time)


RULES = (
    Check(
        name="data-loading",
        title="Training waits for data",
        when=f"data loading takes more than {MIN_LOADING:.0%} of the steps, or leaves a GPU idle for more than that of the time from its first work to its last",
        text="a thread loads data for {loading_ns}; meanwhile the GPU is idle for {idle_ns}, {idle_share} of the time from its first work to its last",
        remedy="give DataLoader more workers (num_workers), pin_memory=True and prefetch_factor; decode and augment on the GPU",
        estimate="the GPU's idle time while data is loaded",
        source=TENSORBOARD,
        needs=("work", "ops"),
        find=waits_for_data,
    ),
    Check(
        name="single-process-loader",
        title="The training process loads the data itself",
        when="batches come from a loader without workers",
        text="batches loaded by the training process: {batches}, in {loading_ns}",
        remedy="use DataLoader(num_workers=4) or more: workers load data while the GPU runs",
        estimate="the GPU's idle time while data is loaded",
        source=TORCH_TIDY,
        needs=("work", "ops"),
        find=single_process_loader,
    ),
    Check(
        name="recompilation",
        title="Recompilation after the first steps",
        when="ops or API calls compile in steps that are neither warm-up nor among the first two",
        text="compilations after the first steps: {compilations}, {compiling_ns} on a thread, in {steps} steps",
        remedy="keep shapes constant, or use torch.compile(dynamic=True); TORCH_LOGS=recompiles shows the reasons; load modules before the loop (CUDA_MODULE_LOADING=EAGER)",
        estimate="the GPU's idle time during compilation",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "steps"),
        find=recompilation,
    ),
)


# -- Rules about several GPUs


MIN_EXPOSED = 0.05
MIN_WAITING = 0.1  # of the time of collectives
DATA_PARALLEL = re.compile(r"(?:.*[.:])?DataParallel(?:\.forward)?")
SLOW_BACKEND = re.compile(r"(?:gloo|mpi|ucc):.*")
NCCL_CAPABILITY = 3.5  # compute capability


def data_parallel(evidence: Evidence) -> Finding | None:
    """Find a model that one process distributes over several GPUs."""
    nodes = np.flatnonzero(evidence.outermost(evidence.nodes_with_op(DATA_PARALLEL.fullmatch)))
    if not len(nodes) or len(evidence.gpus) == 1:
        return None
    nesting = evidence.attributed.attribution.nesting
    spent = (nesting.end - nesting.start)[nodes]
    figures = {"calls": len(nodes), "gpus": len(evidence.gpus)}
    return Finding(
        figures, rule.node_table(evidence, nodes, spent), int(evidence.gpus["idle_ns"].max())
    )


def slow_backend(evidence: Evidence) -> Finding | None:
    """Find collectives of PyTorch that do not run on NCCL although the GPUs support it."""
    nodes = np.flatnonzero(evidence.outermost(evidence.nodes_with_op(SLOW_BACKEND.fullmatch)))
    capable = (evidence.capability[evidence.kernels] >= NCCL_CAPABILITY).any()
    if not len(nodes) or not capable:
        return None
    nesting = evidence.attributed.attribution.nesting
    spent = (nesting.end - nesting.start)[nodes]
    figures = {"collectives": len(nodes), "host_ns": int(spent.sum())}
    ceiling = evidence.max_over_threads(nesting.stack[nodes], spent)
    return Finding(figures, rule.node_table(evidence, nodes, spent), ceiling)


def exposed_communication(evidence: Evidence) -> Finding | None:
    """Find communication while nothing computes on its GPU."""
    part = evidence.gpus["exposed_ns"] / evidence.gpus["span_ns"].clip(lower=1)
    if not (part > MIN_EXPOSED).any():
        return None
    rows = np.flatnonzero(evidence.communication)
    exposed = exposed_times(evidence.attributed)[rows]
    matched, waited = waits(evidence.attributed)
    waiting = np.zeros(len(evidence.time), np.int64)
    waiting[matched] = waited
    transfer = np.maximum(exposed - waiting[rows], 0)  # the rest is that of another rank
    worst = evidence.gpus.iloc[int(part.argmax())]
    figures = {
        "device": str(worst["device"]),
        "exposed_ns": int(worst["exposed_ns"]),
        "exposed_share": float(part.max()),
    }
    ceiling = min(int(evidence.gpus["exposed_ns"].max()), evidence.max_over_gpus(rows, transfer))
    hideable = int((evidence.gpus["compute_ns"] - evidence.gpus["overlap_ns"]).max())
    table = rule.activity_table(evidence, rows, exposed)
    lost = LostTime(activities=rows, work_ns=evidence.time[rows])
    return Finding(figures, table, ceiling, min(ceiling, hideable), lost)


def stragglers(evidence: Evidence) -> Finding | None:
    """Find collectives most of whose time is one rank waiting for another."""
    table = by_collective(evidence.attributed, by_message=False)
    table = table[table["wait_ns"] > 0]
    waited, total = int(table["wait_ns"].sum()), int(table["total_ns"].sum())
    if not waited or waited <= MIN_WAITING * total:
        return None
    columns = ["collective", "op", "count", "total_ns", "wait_ns", "transfer_ns", "straggler"]
    table = table.sort_values("wait_ns", ascending=False, ignore_index=True, kind="stable")[columns]
    by_rank = table.groupby("straggler")["wait_ns"].sum()
    figures = {"waiting_share": waited / total, "straggler": str(by_rank.idxmax())}
    rows, waiting = waits(evidence.attributed)
    ceiling = evidence.max_over_gpus(rows, waiting)
    lost = LostTime(activities=rows, work_ns=evidence.time[rows])
    return Finding(figures, table, ceiling, lost=lost)


MULTI_GPU_RULES = (
    Check(
        name="data-parallel",
        title="DataParallel is used",
        when="DataParallel runs, and work on several GPUs",
        text="calls of DataParallel: {calls}; one process launches the work of {gpus} GPUs",
        remedy="use DistributedDataParallel, with one process per GPU",
        source=TENSORBOARD,
        needs=("work", "ops"),
        find=data_parallel,
    ),
    Check(
        name="slow-backend",
        title="Collectives do not run on NCCL",
        when="collectives of gloo, MPI or UCC run, on compute capability 3.5 or newer",
        text="collectives of another backend: {collectives}; they take {host_ns} on the host",
        remedy="use init_process_group(backend='nccl')",
        source=TENSORBOARD,
        needs=("kernels", "ops", "capability"),
        find=slow_backend,
    ),
    Check(
        name="exposed-communication",
        title="Exposed communication",
        when=f"communication while nothing computes is more than {MIN_EXPOSED:.0%} of the time from a GPU's first work to its last",
        text="{device} communicates without computing for {exposed_ns}, {exposed_share} of the time from its first work to its last",
        remedy="overlap it with computation: gradient_as_bucket_view, static_graph, FSDP prefetching; start it earlier, on a separate stream",
        estimate="at most the computation that does not hide communication yet",
        source=NSIGHT_BRIDGE,
        needs=("kernels",),
        find=exposed_communication,
        remedy_elsewhere="overlap it with computation: start it earlier, on a separate stream",
    ),
    Check(
        name="stragglers",
        title="Ranks wait for a slow rank",
        when=f"waiting for other ranks is more than {MIN_WAITING:.0%} of the time of collectives",
        text="waiting for other ranks takes {waiting_share} of collective time, most of it for {straggler}",
        remedy="find out what takes longer on the slow rank (bridge report REPORT --by rank,op); balance data and layers",
        source=NSIGHT_BRIDGE,
        needs=("kernels",),
        find=stragglers,
    ),
)
