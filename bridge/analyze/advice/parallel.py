"""Rules on several GPUs: how they are used together, and what they wait for of one another."""

from __future__ import annotations

import re

import numpy as np

from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import HERE, NOT_ESTIMATED, TENSORBOARD, Finding, Rule
from bridge.analyze.concurrency import by_collective
from bridge.analyze.concurrency.collectives import waits
from bridge.analyze.concurrency.exposure import exposed_times

COMMUNICATION = 0.1  # of the time of a GPU
EXPOSED = 0.05
WAITING = 0.1  # of the time of collectives
DATA_PARALLEL = re.compile(r"(?:.*[.:])?DataParallel(?:\.forward)?")
SLOW_BACKEND = re.compile(r"(?:gloo|mpi|ucc):.*")
FIRST_WITH_NCCL = 3.5  # compute capability


def data_parallel(seen: Seen) -> Finding | None:
    """A model that one process spreads over several GPUs."""
    nodes = np.flatnonzero(seen.outermost(seen.ops_like(DATA_PARALLEL.fullmatch)))
    if not len(nodes) or len(seen.gpus) == 1:
        return None
    nesting = seen.joined.attribution.nesting
    spent = (nesting.end - nesting.start)[nodes]
    figures = {"calls": len(nodes), "gpus": len(seen.gpus)}
    return Finding(figures, rule.of_nodes(seen, nodes, spent), int(seen.gpus["idle_ns"].max()))


def slow_backend(seen: Seen) -> Finding | None:
    """Collectives of PyTorch that do not run on NCCL, though the GPUs could."""
    nodes = np.flatnonzero(seen.outermost(seen.ops_like(SLOW_BACKEND.fullmatch)))
    capable = (seen.capability[seen.kernels] >= FIRST_WITH_NCCL).any()
    if not len(nodes) or not capable:
        return None
    nesting = seen.joined.attribution.nesting
    spent = (nesting.end - nesting.start)[nodes]
    figures = {"collectives": len(nodes), "host_ns": int(spent.sum())}
    ceiling = seen.most_of_threads(nesting.stack[nodes], spent)
    return Finding(figures, rule.of_nodes(seen, nodes, spent), ceiling)


def much_communication(seen: Seen) -> Finding | None:
    """Communication that takes more than a tenth of a GPU's time."""
    part = seen.gpus["communication_ns"] / seen.gpus["span_ns"].clip(lower=1)
    if not (part > COMMUNICATION).any():
        return None
    rows = np.flatnonzero(seen.communication)
    worst = seen.gpus.iloc[int(part.argmax())]
    figures = {"device": str(worst["device"]), "communication_share": float(part.max())}
    return Finding(
        figures, rule.of_activities(seen, rows), int(seen.gpus["communication_ns"].max())
    )


def exposed_communication(seen: Seen) -> Finding | None:
    """Communication while nothing computes on its GPU."""
    part = seen.gpus["exposed_ns"] / seen.gpus["span_ns"].clip(lower=1)
    if not (part > EXPOSED).any():
        return None
    rows = np.flatnonzero(seen.communication)
    alone = exposed_times(seen.joined)[rows]
    worst = seen.gpus.iloc[int(part.argmax())]
    figures = {
        "device": str(worst["device"]),
        "exposed_ns": int(worst["exposed_ns"]),
        "exposed_share": float(part.max()),
    }
    ceiling = int(seen.gpus["exposed_ns"].max())
    room = int((seen.gpus["compute_ns"] - seen.gpus["overlap_ns"]).max())
    table = rule.of_activities(seen, rows, alone)
    return Finding(figures, table, ceiling, min(ceiling, room))


def stragglers(seen: Seen) -> Finding | None:
    """Collectives whose time is mostly one rank waiting for another."""
    table = by_collective(seen.joined)
    table = table[table["wait_ns"] > 0]
    waited, total = int(table["wait_ns"].sum()), int(table["total_ns"].sum())
    if not waited or waited <= WAITING * total:
        return None
    columns = ["collective", "op", "count", "total_ns", "wait_ns", "transfer_ns", "straggler"]
    table = table.sort_values("wait_ns", ascending=False, ignore_index=True, kind="stable")[columns]
    by_rank = table.groupby("straggler")["wait_ns"].sum()
    figures = {"waiting_share": waited / total, "straggler": str(by_rank.idxmax())}
    ceiling = seen.most(*waits(seen.joined))
    return Finding(figures, table, ceiling)


RULES = (
    Rule(
        "data-parallel",
        "DataParallel is used",
        "DataParallel runs, and work on several GPUs",
        "calls of DataParallel: {calls}; one process feeds {gpus} GPUs",
        "DistributedDataParallel: a process per GPU",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("work", "ops"),
        data_parallel,
    ),
    Rule(
        "slow-backend",
        "Collectives do not run on NCCL",
        "collectives of gloo, MPI or UCC run, on compute capability 3.5 or newer",
        "collectives of another backend: {collectives}, {host_ns} of the host",
        "init_process_group(backend='nccl')",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("kernels", "ops", "capability"),
        slow_backend,
    ),
    Rule(
        "communication",
        "Communication takes a large part",
        f"communication is more than {COMMUNICATION:.0%} of a GPU's span",
        "communication takes {communication_share} of the time of {device}",
        "gradient accumulation, larger batches, compressed gradients; larger buckets (bucket_cap_mb)",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("kernels",),
        much_communication,
    ),
    Rule(
        "exposed-communication",
        "Communication is not hidden by computation",
        f"communication while nothing computes is more than {EXPOSED:.0%} of a GPU's span",
        "for {exposed_ns}, {exposed_share} of its time, {device} communicates and computes nothing",
        "overlap it: gradient_as_bucket_view, static_graph, FSDP's prefetching; start it earlier on a stream of its own",
        "as far as there is computation that nothing is hidden behind yet",
        HERE,
        ("kernels",),
        exposed_communication,
    ),
    Rule(
        "stragglers",
        "Ranks wait for one another",
        f"waiting for other ranks is more than {WAITING:.0%} of the time of collectives",
        "{waiting_share} of the time of collectives is waiting, most of it for {straggler}",
        "look at what the slow rank does longer: bridge report --by op of its file; balance data and layers",
        NOT_ESTIMATED,
        HERE,
        ("kernels",),
        stragglers,
    ),
)
