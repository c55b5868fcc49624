"""How the work on GPUs overlaps, one nanosecond after the other, and how long collectives transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COMPUTE, COMMUNICATION, COPY = "compute", "communication", "memcpy"
GRAPH = "graph"  # recorded as a whole: nobody knows whether it computes


@dataclass(frozen=True)
class Ran:
    """Work of some kind on a GPU, and the blocks per multiprocessor of its launch (0 unknown)."""

    gpu: object
    kind: str
    start: int
    end: int
    blocks: float = 0.0


def instants(work: Iterable[Ran], *kinds: str) -> set[int]:
    """Give the instants at which any work of these kinds ran."""
    return {t for one in work if one.kind in kinds for t in range(one.start, one.end)}


def device(work: Sequence[Ran], run_ns: int) -> dict[str, float]:
    """Describe one GPU in a run of some length."""
    every = instants(work, COMPUTE, COMMUNICATION, COPY, GRAPH)
    compute, talks = (instants(work, kind) for kind in (COMPUTE, COMMUNICATION))
    first, last = min(one.start for one in work), max(one.end for one in work)
    total = sum(one.end - one.start for one in work)
    at_once = [sum(one.start <= t < one.end for one in work) for t in range(first, last)]
    return {
        "activities": len(work),
        "gpu_ns": total,
        "run_ns": run_ns,
        "busy_ns": len(every),
        "elsewhere_ns": 0,
        "idle_ns": run_ns - len(every),
        "busy_share": len(every) / run_ns if run_ns else 0,
        "span_ns": last - first,
        "concurrency": total / len(every) if every else 0,
        "max_concurrent": max(at_once, default=0),
        "compute_ns": len(compute),
        "communication_ns": len(talks),
        "memops_ns": len(instants(work, COPY)),
        "overlap_ns": len(compute & talks),
        "exposed_ns": len(talks - compute),
    }


def efficiency(work: Sequence[Ran], first: int, last: int) -> float:
    """Average over the span how many of the multiprocessors have a block."""
    used = [
        min(1, sum(one.blocks for one in work if one.start <= t < one.end))
        for t in range(first, last)
    ]
    return sum(used) / max(1, last - first)


def exposed(one: Ran, work: Sequence[Ran]) -> int:
    """Count the instants of some communication at which nothing computes on its GPU."""
    computing = instants([other for other in work if other.gpu == one.gpu], COMPUTE)
    return len(set(range(one.start, one.end)) - computing)


def transfers(calls: Sequence[tuple[int, int, int, int, int]]) -> list[int]:
    """Give the least time of the same collective on all ranks; calls are (rank, stream, kind, start, time)."""
    streams = defaultdict(list)
    for row, (rank, stream, _, start, _) in enumerate(calls):
        streams[rank, stream].append((start, row))
    sequences = defaultdict(lambda: defaultdict(list))
    for (rank, _), members in sorted(streams.items(), key=lambda item: min(item[1])):
        rows = [row for _, row in sorted(members)]
        sequences[tuple(calls[row][2] for row in rows)][rank].append(rows)
    found = [-1] * len(calls)
    for by_rank in sequences.values():
        for nth in range(max(map(len, by_rank.values()))):
            together = [several[nth] for several in by_rank.values() if len(several) > nth]
            compare(calls, together, found)
    return found


def compare(calls, together: list[list[int]], found: list[int]) -> None:
    """Set the least time of the calls that are one on several ranks."""
    for same in zip(*together, strict=True) if len(together) > 1 else ():
        for row in same:
            found[row] = min(calls[other][4] for other in same)
