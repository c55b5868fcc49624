"""Rules about several GPUs, ranks and processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NOT_ESTIMATED,
    NSIGHT_BRIDGE,
    TENSORBOARD,
    Finding,
    Rule,
)
from bridge.analyze.core.groups import sums
from bridge.analyze.run import interventions
from bridge.analyze.run.concurrency.collectives import by_collective
from bridge.analyze.run.concurrency.overlap import exposed_times
from bridge.analyze.run.critical.retiming import Draft
from bridge.importers import frames
from bridge.join.arrays import Ints, number_groups, order_by, run_edges

MIN_EXPOSED = 0.01  # of the run
MIN_SLOWER = 1.08  # times the kernels of other GPUs, by name
MIN_MORE = 1.08  # times the mean of the GPUs of a process
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
    limit = interventions.faster_code(evidence.run, points)
    return Finding(figures, rule.node_table(evidence, nodes, spent), limit=limit)


def exposed_communication(evidence: Evidence) -> Finding | None:
    """Find communication while nothing computes on its GPU."""
    exposed_ns = int(evidence.gpus["exposed_ns"].max()) if len(evidence.gpus) else 0
    if exposed_ns <= MIN_EXPOSED * evidence.wall_ns:
        return None
    rows = np.flatnonzero(evidence.communication)
    worst = evidence.gpus.iloc[int(evidence.gpus["exposed_ns"].argmax())]
    figures = {
        "device": str(worst["device"]),
        "exposed_ns": exposed_ns,
        "exposed_share": exposed_ns / max(1, evidence.wall_ns),
    }
    table = rule.activity_table(evidence, rows, exposed_times(evidence.attributed)[rows])
    run = evidence.run
    change = interventions.hidden(run, evidence.communication)
    limit = interventions.without_work(run, interventions.work_places(run, evidence.communication))
    return Finding(figures, table, change=change, limit=limit)


def stragglers(evidence: Evidence) -> Iterator[Finding]:
    """Yield GPUs whose kernels take longer than the same kernels on the GPUs of other ranks, which wait for them."""
    table = by_collective(evidence.attributed, by_message=False)
    if not len(table) or not (table["wait_ns"] > 0).any():
        return
    run = evidence.run
    places = interventions.work_places(run, run.computing & evidence.counted)
    gpu = run.gpu_of_place[places]
    name = frames.codes(evidence.attributed.activity_name)[run.work.row[places]]
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
        shorter = np.rint(length[gpu == one] * factor[group[gpu == one]]).astype(np.int64)
        figures = {
            "straggler": evidence.devices.names[one],
            "slower_share": float(by_gpu[one] / total[one]),
            "kernels_ns": int(total[one]),
        }
        yield Finding(
            figures,
            rule.activity_table(evidence, run.work.row[mine]),
            change=interventions.faster_work(run, mine, shorter),
        )


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
        factor[mine] = total[mine].mean() / np.maximum(total[mine], 1)
    worst = int(np.argmin(factor)) if len(factor) else 0
    if not len(factor) or factor[worst] * MIN_MORE > 1:
        return None
    figures = {
        "device": evidence.devices.names[int(gpu[first[worst]])],
        "more_share": float(1 / factor[worst] - 1),
        "kernels_ns": int(total[worst]),
    }
    ends, by = run.device.end[places], factor[home]

    def change(draft: Draft) -> None:
        draft.delay[ends] = np.rint(draft.delay[ends] * by).astype(np.int64)

    selected = places[home == worst]
    return Finding(figures, rule.activity_table(evidence, run.work.row[selected]), change=change)


def shared_gpu(evidence: Evidence) -> Finding | None:
    """Find a GPU on which another process works, which has no rank of the run and less to do with it."""
    run = evidence.run
    process, gpu = run.work.column("process"), run.gpu_of_place
    users, first = number_groups(gpu, process)
    several = np.flatnonzero(np.bincount(gpu[first], minlength=len(evidence.devices.names)) > 1)
    if not len(several):
        return None
    others = _others(evidence, users, first, several)
    places = np.flatnonzero(np.isin(users, others))
    if not len(places):
        return None
    rows = run.work.row[places]
    figures = {
        "device": evidence.devices.names[int(gpu[places[0]])],
        "pid": int(frames.pid(process[places[:1]])[0]),
        "work_ns": int((run.work.end - run.work.start)[places].sum()),
    }
    change = interventions.without_work(run, places)
    return Finding(figures, rule.activity_table(evidence, rows), change=change)


def _others(evidence: Evidence, users: Ints, first: Ints, several: Ints) -> Ints:
    """Return the users, pairs of a GPU and a process, that are not those with most kinds of work on a shared GPU."""
    run = evidence.run
    name = frames.codes(evidence.attributed.activity_name)[run.work.row]
    _, distinct = number_groups(users, name)
    kinds = np.bincount(users[distinct], minlength=len(first))
    gpu = run.gpu_of_place[first]
    result = []
    for one in several.tolist():
        mine = np.flatnonzero(gpu == one)
        main = mine[int(np.argmax(kinds[mine]))]
        result += [user for user in mine.tolist() if user != main and kinds[user] * 2 <= kinds[main]]
    return np.array(result, np.int64)


RULES = (
    Rule(
        "shared-gpu",
        "Another process works on the same GPU",
        "a second process with fewer kinds of work has work on a GPU",
        "process {pid} works on {device} for {work_ns}, in turn with the others",
        "run it on another GPU, or at another time; MPS lets both work at once",
        "the run without the work of that process",
        NSIGHT_BRIDGE,
        ("work", "graph"),
        shared_gpu,
    ),
    Rule(
        "uneven-gpus",
        "One GPU of a process has more work than the others",
        f"the kernels of a GPU take {MIN_MORE - 1:.0%} longer than the mean of the GPUs of its process",
        "kernels on {device} take {kernels_ns}, {more_share} more than the mean of the GPUs of its process",
        "give all GPUs the same share of the work",
        "the run with the same time of kernels on all GPUs of the process",
        NSIGHT_BRIDGE,
        ("kernels", "graph"),
        uneven_gpus,
    ),
    Rule(
        "data-parallel",
        "DataParallel is used",
        "DataParallel runs, and work on several GPUs",
        "calls of DataParallel: {calls}; one process launches the work of {gpus} GPUs",
        "use DistributedDataParallel, with one process per GPU",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("work", "ops"),
        data_parallel,
    ),
    Rule(
        "slow-backend",
        "Collectives do not run on NCCL",
        "collectives of gloo, MPI or UCC run, on compute capability 3.5 or newer",
        "collectives of another backend: {collectives}; they take {host_ns} on the host",
        "use init_process_group(backend='nccl')",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("kernels", "ops", "capability", "graph"),
        slow_backend,
    ),
    Rule(
        "exposed-communication",
        "Exposed communication",
        f"communication while nothing computes is more than {MIN_EXPOSED:.0%} of the run",
        "{device} communicates without computing for {exposed_ns}, {exposed_share} of the run",
        "overlap it with computation: gradient_as_bucket_view, static_graph, FSDP prefetching; start it earlier, on a separate stream",
        "the run if communication cost nothing while its GPU computes",
        NSIGHT_BRIDGE,
        ("kernels", "graph"),
        exposed_communication,
        "overlap it with computation: start it earlier, on a separate stream",
    ),
    Rule(
        "stragglers",
        "Ranks wait for a slow GPU",
        f"kernels take {MIN_SLOWER - 1:.0%} longer on one GPU than the same kernels on the others, and collectives wait",
        "kernels on {straggler} take {slower_share} longer than the same kernels on the other GPUs; they wait for it in collectives",
        "find out why this GPU is slower (clocks, power, another process; bridge report REPORT --by rank,op); balance data and layers",
        "the run with kernels as fast as on the other GPUs",
        NSIGHT_BRIDGE,
        ("kernels", "graph"),
        stragglers,
    ),
)
