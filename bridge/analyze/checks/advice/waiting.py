"""Rules about several GPUs, ranks and processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    TENSORBOARD,
    Finding,
)
from bridge.analyze.checks.check import Check
from bridge.analyze.core.groups import Floats, sums, texts
from bridge.analyze.core.kinds import calls_matching
from bridge.analyze.core.table import Table
from bridge.analyze.run import interventions
from bridge.analyze.run.causes.host_timeline import Cover
from bridge.analyze.run.concurrency.collectives import by_collective
from bridge.analyze.run.concurrency.overlap import exposed_times
from bridge.analyze.run.critical.device import Met
from bridge.analyze.run.critical.graph import NEVER
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.work import MAX_LATENCY_NS
from bridge.analyze.run.idle.causes import CODE, WORDS, WORKING, Causes
from bridge.analyze.run.ranks.stragglers import Comparison, LateArrivals, names_of_ranks
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges

FEW_BATCHES = 2  # micro-batches per stage of a pipeline, as most use at least
MANY_BATCHES = 4  # with which stages hardly wait for one another, as GPipe's authors measured it
MIN_EXPOSED = 0.01  # of the run
MIN_LATE = 0.02  # of the run, on the critical path
MIN_SLOWER = 1.08  # times the kernels of other GPUs, by name
MOST_OTHER = 0.15  # of counts and ratios of kernels by name, by which parts of one work differ
MIN_MORE = 1.08  # times the mean of the GPUs of a process
# Calls that give streams work of which nothing is recorded; and graphs, whose first launch uploads them.
UNSEEN = re.compile(
    r"cu(?:da)?(?:MemPrefetch|MemAdvise|LaunchHostFunc|StreamWaitValue|StreamWriteValue|StreamBatchMemOp|StreamAddCallback"
    r"|WaitExternal|SignalExternal|GraphLaunch|GraphUpload)\w*"
)
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
    return Finding(figures, rule.node_table(evidence, nodes, spent))


def slow_backend(evidence: Evidence) -> Finding | None:
    """Find collectives of PyTorch that do not run on NCCL although the GPUs support it."""
    nodes = np.flatnonzero(evidence.outermost(evidence.nodes_with_op(SLOW_BACKEND.fullmatch)))
    capable = (evidence.capability[evidence.kernels] >= NCCL_CAPABILITY).any()
    if not len(nodes) or not capable:
        return None
    nesting = evidence.attributed.attribution.nesting
    spent = (nesting.end - nesting.start)[nodes]
    figures = {"collectives": len(nodes), "host_ns": int(spent.sum())}
    selected = np.zeros(len(nesting), bool)
    selected[nodes] = True
    points = interventions.host_points(evidence.run, interventions.under(evidence.run, selected))
    limit = interventions.faster_code(points)
    return Finding(figures, rule.node_table(evidence, nodes, spent), limit=limit)


def exposed_communication(evidence: Evidence) -> Finding | None:
    """Find communication while nothing computes on its GPU."""
    exposed_ns = int(evidence.gpus["exposed_ns"].max()) if len(evidence.gpus) else 0
    if exposed_ns <= MIN_EXPOSED * evidence.wall_ns:
        return None
    rows = np.flatnonzero(evidence.communication)
    worst = evidence.gpus.row(int(evidence.gpus["exposed_ns"].argmax()))
    figures = {
        "device": str(worst["device"]),
        "exposed_ns": exposed_ns,
        "exposed_share": exposed_ns / max(1, evidence.wall_ns),
    }
    table = rule.activity_table(evidence, rows, exposed_times(evidence.attributed)[rows])
    run = evidence.run
    communication = interventions.work_places(run, evidence.communication)
    limit = interventions.without_work(run, communication)
    hideable = np.zeros(len(evidence.time), bool)
    hideable[run.work.row[_in_turn_with_kernels(evidence, communication)]] = True
    change = interventions.hidden(run, hideable) if hideable.any() else None
    return Finding(figures, table, change=change, limit=limit)


def _in_turn_with_kernels(evidence: Evidence, communication: Ints) -> Ints:
    """Return the communication on streams of kernels, but for the last of each row of them, whose data is there last.

    What has a stream of its own runs beside kernels already, as far as its data allow.
    """
    run = evidence.run
    kernels = np.bincount(run.work.lane, run.computing[run.work.row])
    shares = communication[kernels[run.work.lane[communication]] > 0]
    follows = np.zeros(len(run.work.row) + 1, bool)
    follows[shares] = True
    return shares[follows[shares + 1]]


def stragglers(evidence: Evidence) -> Iterator[Finding]:
    """Yield GPUs whose kernels take longer than the same kernels on the GPUs of other ranks, which wait for them."""
    table = by_collective(evidence.attributed, by_message=False)
    if not len(table) or not (table["wait_ns"] > 0).any():
        return
    run = evidence.run
    places = interventions.work_places(run, run.computing & evidence.counted)
    gpu = run.gpu_of_place[places]
    name = evidence.attributed.activity_name.codes[run.work.row[places]]
    length = (run.work.end - run.work.start)[places]
    group, first = number_groups(gpu, name)
    mean = sums(group, length, len(first)) / np.maximum(np.bincount(group), 1)
    factor = np.ones(len(first))
    order = order_by(name[first], gpu[first])
    for begin, end in pairwise(run_edges(name[first][order]).tolist()):  # one iteration per name
        rows = order[begin:end]
        if len(rows) > 1:
            for at in rows.tolist():
                others = mean[rows[rows != at]]
                factor[at] = min(1.0, float(np.median(others)) / max(1.0, mean[at]))
    slow = (sums(group, length, len(first)) * (1 - factor)).astype(np.int64)
    by_gpu = sums(gpu[first], slow, len(evidence.devices.names))
    total = sums(gpu, length, len(evidence.devices.names))
    for one in order_by(-by_gpu).tolist():
        if not total[one] or total[one] < MIN_SLOWER * (total[one] - by_gpu[one]):
            return
        mine = places[gpu == one]
        figures = {
            "straggler": evidence.devices.names[one],
            "slower_share": float(by_gpu[one] / (total[one] - by_gpu[one])),
            "kernels_ns": int(total[one]),
        }
        yield Finding(
            figures,
            rule.activity_table(evidence, run.work.row[mine]),
            change=_scaled(run.device.end[mine], factor[group[gpu == one]]),
        )


def late_rank(evidence: Evidence) -> Finding | None:
    """Find the rank that the others wait for in collectives, and what it spends more time on than they do."""
    run = evidence.run
    if not len(Met.of(run.work).waiting):  # else a graph of each rank alone is made in vain
        return None
    found = Comparison.of(evidence.attributed, run)
    rank, less_ns = found.least_waiting()
    if rank == NONE or less_ns <= MIN_LATE * run.span:
        return None
    rows = np.flatnonzero((found.rank == rank) & (found.more > 0) & ~found.waits)
    rows = rows[order_by(-found.more[rows])]
    if not len(rows) or (found.cause[rows[0]] == CODE[WORKING] and any(stragglers(evidence))):
        return None
    names = evidence.attributed.ops
    what = [
        _doing(found.causes, names, *one)
        for one in zip(
            *(column[rows].tolist() for column in (found.cause, found.op, found.callee)),
            strict=True,
        )
    ]
    node = found.longest_nodes(run)[rows]
    path, paths = evidence.paths
    more = Table(
        {
            "what": texts(what),
            "op": texts([*names, rule.NO_OP])[found.op[rows]],
            "path": texts([*paths, ""])[lookup(path, node)],
            "total_ns": found.more[rows],
            "count": found.counts()[rows],
            "example": lookup(evidence.attributed.attribution.nesting.range, node),
        }
    )
    figures = {
        "rank": names_of_ranks(evidence.attributed)[rank],
        "less_ns": less_ns,
        "more_ns": int(found.more[rows[0]]),
        "what": what[0],
        "at": _latest_at(evidence, rank),
    }
    return Finding(figures, more, change=found.as_others(int(rows[0])))


def _latest_at(evidence: Evidence, rank: int) -> str:
    """Return the path of ops, else the kernel, of the collectives that a rank comes latest to in all."""
    late = LateArrivals.of(evidence.run)
    late = late.take(
        evidence.counted[late.activity] & (evidence.devices.gpu[late.activity] == rank)
    )
    table = rule.activity_table(evidence, late.activity, late.late)
    return str(table["path"][0] or table["activity"][0]) if len(table) else "collectives"


def _doing(causes: Causes, ops: Sequence[str], cause: int, op: int, callee: int) -> str:
    """Return what a rank does in words: the cause, its op and its call."""
    of_op = f" of {ops[op]}" if op != NONE else ""
    return f"{WORDS[cause]}{of_op}{f' ({causes.callees[callee]})' if callee != NONE else ''}"


def uneven_gpus(evidence: Evidence) -> Finding | None:
    """Find a process that gives one of its GPUs more work than the others."""
    run = evidence.run
    places = interventions.work_places(run, run.computing & evidence.counted)
    process, gpu = run.work.column("process")[places], run.gpu_of_place[places]
    length = (run.work.end - run.work.start)[places]
    home, first = number_groups(process, gpu)
    total = sums(home, length, len(first))
    owner = process[first]
    factor = np.ones(len(first))
    for one in np.unique(owner).tolist():  # one iteration per process
        mine = np.flatnonzero(owner == one)
        if _is_alike(evidence, places, home, mine):
            time = np.maximum(total[mine], 1)
            factor[mine] = time.mean() / time
    worst = int(np.argmin(factor)) if len(factor) else 0
    if not len(factor) or factor[worst] * MIN_MORE > 1:
        return None
    figures = {
        "device": evidence.devices.names[int(gpu[first[worst]])],
        "more_share": float(1 / factor[worst] - 1),
        "kernels_ns": int(total[worst]),
    }
    change = _scaled(run.device.end[places], factor[home])
    selected = places[home == worst]
    return Finding(figures, rule.activity_table(evidence, run.work.row[selected]), change=change)


def _scaled(ends: Ints, factor: Floats) -> Change:
    """Return the change that kernels take another time, whatever else makes them faster."""

    def change(draft: Draft) -> None:
        draft.set(ends, np.rint(draft.delay[ends] * factor).astype(np.int64))

    return change


def _is_alike(evidence: Evidence, places: Ints, home: Ints, users: Ints) -> bool:
    """Return whether GPUs run the same kernels, in times that have one ratio: parts of one work."""
    run = evidence.run
    name = evidence.attributed.activity_name.codes[run.work.row[places]]
    length = (run.work.end - run.work.start)[places]
    size = int(name.max(initial=0)) + 1
    count, mean = [], []
    for user in users.tolist():
        mine = home == user
        count.append(np.bincount(name[mine], minlength=size))
        mean.append(sums(name[mine], length[mine], size) / np.maximum(count[-1], 1))
    used = count[0] > 0
    for other, times in zip(count[1:], mean[1:], strict=True):
        if ((other > 0) != used).any() or (np.abs(other - count[0]) > MOST_OTHER * count[0]).any():
            return False
        ratio = np.maximum(times[used], 1) / np.maximum(mean[0][used], 1)  # kernels may take 0 ns
        if len(ratio) and ratio.max() - ratio.min() > MOST_OTHER * ratio.mean():
            return False
    return len(users) > 1


def shared_gpu(evidence: Evidence) -> Finding | None:
    """Find a GPU on which another process works, which has no rank of the run and less to do with it."""
    run = evidence.run
    places = np.flatnonzero(run.work.of_others)
    if not len(places):
        return None
    figures = {
        "device": evidence.devices.names[int(run.gpu_of_place[places[0]])],
        "pid": int(frames.pid(run.work.column("process")[places[:1]])[0]),
        "work_ns": int((run.work.end - run.work.start)[places].sum()),
    }
    change = interventions.without_process(run, places)
    return Finding(figures, rule.activity_table(evidence, run.work.row[places]), change=change)


def late_work(evidence: Evidence) -> Finding | None:
    """Find work that nothing recorded keeps from beginning, and that begins late on a GPU that runs nothing recorded."""
    run = evidence.run
    points, ns = _unexplained(evidence)
    path_ns = int(ns[np.isin(points, run.path)].sum())
    if path_ns < max(1, MIN_LATE * run.span):
        return None
    places = run.device.activity[points]
    gpu = run.gpu_of_place[places]
    total = sums(gpu, ns, len(evidence.devices.names))
    figures = {
        "device": evidence.devices.names[int(total.argmax())],
        "activities": len(points),
        "late_ns": int(ns.sum()),
        "path_ns": path_ns,
        "path_share": path_ns / run.span,
    }

    def change(draft: Draft) -> None:
        draft.shorten(points, ns)

    return Finding(figures, rule.activity_table(evidence, run.work.row[places], ns), change=change)


def _unexplained(evidence: Evidence) -> tuple[Ints, Ints]:
    """Return the points at which work begins late, and by how many ns: while its GPU runs nothing, beyond the usual.

    Without the waits of streams in the report, work may wait for any GPU.
    """
    run, work = evidence.run, evidence.run.work
    starts, ends = run.device.start, lookup(work.call_end, work.launch, 0)
    delay = run.graph.delay_of(starts)
    gpu = run.gpu_of_place if len(evidence.capture.waits) else np.zeros_like(run.gpu_of_place)
    busy = Cover.of(gpu, work.start, work.end)
    lost = delay - busy.within(gpu, work.start - delay, work.start) - run.usual_latency
    late = (work.launch != NONE) & (lost > MAX_LATENCY_NS) & ~work.of_others
    late &= evidence.counted[work.row] & ~lookup(_behind_unseen(evidence), work.launch, False)
    late &= work.start >= ends  # else the call itself took long
    return starts[late], lost[late]


def _behind_unseen(evidence: Evidence) -> Flags:
    """Return whether each API call launches a graph, or its thread gave a stream work that is not recorded right before."""
    stack, work = evidence.attributed.attribution.stack, evidence.run.work
    unseen = calls_matching(evidence.attributed, UNSEEN)
    order = order_by(stack, work.call_start)
    count = np.append(np.cumsum(unseen[order]), 0)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    before = np.full(len(order), NONE)  # the place of the issuing call before
    is_same = stack[work.issuing[1:]] == stack[work.issuing[:-1]]
    before[work.issuing[1:]] = np.where(is_same, place[work.issuing[:-1]], NONE)
    result: Flags = unseen | ((before != NONE) & (count[place] > count[before]))
    return result


def pipeline_bubble(evidence: Evidence) -> Finding | None:
    """Find GPUs that hand work on to one another, and wait for it: the stages of a pipeline.

    With twice as many micro-batches, of half the size, each stage waits half as long.
    """
    run = evidence.run
    waiting, awaited = _handovers(evidence)
    if not len(waiting):
        return None
    giver, taker = run.gpu_of_place[awaited], run.gpu_of_place[run.device.activity[waiting]]
    gpus = len(np.union1d(giver, taker))
    place = run.device.activity[waiting].astype(np.int64)
    _, once = number_groups(place, giver)  # however many tensors
    pair, first = number_groups(giver[once], taker[once])
    iterations = max(1, len(evidence.attributed.iterations))
    batches = max(1.0, float(np.median(np.bincount(pair, minlength=len(first)))) / iterations)
    if batches >= FEW_BATCHES * gpus:
        return None
    place, row = np.unique(place, return_index=True)
    starts, first_wait = run.device.start[place], waiting[row]
    before = np.where(run.graph.chained[first_wait], run.graph.time[first_wait - 1], NEVER)
    launched = np.append(run.work.launched_at, NEVER)[run.work.launch[place]]
    ready = np.maximum(before, launched)
    idle = np.where(ready == NEVER, 0, np.maximum(run.graph.time[starts] - ready, 0))
    apart, more = interventions.free(run, waiting), MANY_BATCHES * gpus
    left = (idle * (batches / more)).astype(np.int64)

    def change(draft: Draft) -> None:
        apart(draft)
        draft.set(starts, draft.delay[starts] + left)

    rows = run.work.row[np.unique(awaited)]
    figures = {
        "gpus": gpus,
        "handovers": len(awaited),
        "batches": round(batches, 1),
        "waited_ns": int(idle.sum()),
        "more": more,
    }
    return Finding(figures, rule.activity_table(evidence, rows), change=change, limit=apart)


def _handovers(evidence: Evidence) -> tuple[Ints, Ints]:
    """Return the points at which work within iterations waits for work of another GPU, and that work, by its place."""
    run = evidence.run
    device, cross = run.device, run.graph.cross[: run.hosts]
    points = np.flatnonzero((cross != NONE) & (cross < run.hosts) & (device.activity != NONE))
    own, other = device.activity[points], device.activity[cross[points]]
    gpu = np.append(run.gpu_of_place, NONE)
    goes_over = (other != NONE) & (gpu[own] != gpu[other])
    points, other = points[goes_over], other[goes_over]
    inside = evidence.in_iterations(device.end[other])
    return points[inside], other[inside]


# Before rules that name the same cause, but not the rank.
RANK_RULES = (
    Check(
        name="late-rank",
        title="Ranks wait for a late one",
        when=f"one rank waits less than the others in collectives, by more than {MIN_LATE:.0%} of the run",
        text="{rank} is late, most at {at}: the others wait {less_ns} longer in collectives than it does."
        " It spends {more_ns} more than they do in {what}",
        remedy="make that faster on this rank, or give it less to do; bridge report REPORT --by straggler compares the ranks",
        estimate="the run with no more of that on this rank than on the others",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "graph"),
        find=late_rank,
    ),
)
RULES = (
    Check(
        name="pipeline-bubble",
        title="Stages of a pipeline wait for one another",
        when=f"within iterations work of a GPU waits for work of another GPU of its process, with less than {FEW_BATCHES} micro-batches per GPU",
        text="{gpus} GPUs hand work on to one another {handovers} times, {batches} in an iteration between two of them, and wait for it",
        remedy="split a batch into {more} micro-batches or more, and interleave forward and backward passes (1F1B)",
        estimate=f"the run in which stages wait as much less as there are more micro-batches, {MANY_BATCHES} per stage",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "graph"),
        find=pipeline_bubble,
    ),
    Check(
        name="shared-gpu",
        title="Another process works on the same GPU",
        when="a second process with fewer kinds of work has work on a GPU",
        text="process {pid} works on {device} for {work_ns}, in turn with the others",
        remedy="run it on another GPU, or at another time; MPS lets both work at once",
        estimate="the run without the work of that process",
        source=NSIGHT_BRIDGE,
        needs=("work", "graph"),
        find=shared_gpu,
    ),
    Check(
        name="late-work",
        title="Work that is ready begins late on an idle GPU",
        when=f"kernels and copies wait for nothing that was recorded, their GPU runs nothing, and they begin more than {MAX_LATENCY_NS / 1e3:.0f} us later than usual, {MIN_LATE:.0%} of the run on the critical path",
        text="{activities} activities, most of them on {device}, begin late by {late_ns} in all, though the GPU runs nothing that was recorded; the run waits for it for {path_ns}, {path_share}",
        remedy="find what uses the GPU meanwhile: processes of other users and containers (nvidia-smi), functions of the host in streams (cudaLaunchHostFunc); run it elsewhere, or at another time",
        estimate="the run if this work began as soon as other work does",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=late_work,
    ),
    Check(
        name="uneven-gpus",
        title="One GPU of a process has more work than the others",
        when=f"the kernels of a GPU take {MIN_MORE - 1:.0%} longer than the mean of the GPUs of its process",
        text="kernels on {device} take {kernels_ns}, {more_share} more than the mean of the GPUs of its process",
        remedy="give all GPUs the same share of the work",
        estimate="the run with the same time of kernels on all GPUs of the process",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "graph"),
        find=uneven_gpus,
    ),
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
        needs=("kernels", "ops", "capability", "graph"),
        find=slow_backend,
    ),
    Check(
        name="exposed-communication",
        title="Exposed communication",
        when=f"communication while nothing computes is more than {MIN_EXPOSED:.0%} of the run",
        text="{device} communicates without computing for {exposed_ns}, {exposed_share} of the run",
        remedy="overlap it with computation: gradient_as_bucket_view, static_graph, FSDP prefetching; start it earlier, on a separate stream",
        estimate="the run with communication in streams of kernels beside these, but for the last of each row, whose data is there last; else none",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "graph"),
        find=exposed_communication,
        remedy_elsewhere="overlap it with computation: start it earlier, on a separate stream",
    ),
    Check(
        name="stragglers",
        title="Ranks wait for a slow GPU",
        when=f"kernels take {MIN_SLOWER - 1:.0%} longer on one GPU than the same kernels on the others, and collectives wait",
        text="kernels on {straggler} take {slower_share} longer than the same kernels on the other GPUs; they wait for it in collectives",
        remedy="find out why this GPU is slower (clocks, power, another process; bridge report REPORT --by rank,op); balance data and layers",
        estimate="the run with kernels as fast as on the other GPUs",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "graph"),
        find=stragglers,
    ),
)
