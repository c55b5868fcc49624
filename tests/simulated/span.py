"""The length of a run, and what each GPU did in every nanosecond of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulated.device import Gpu, Kind, Work
from simulated.machine import Machine

IDLE = "idle"
STATES = (*(kind.value for kind in Kind), IDLE)  # the first that applies
_ORDER = (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY, Kind.FILL, Kind.GRAPH)
Interval = tuple[int, int]


def run_span(machine: Machine) -> Interval:
    """Return the first start and the last end of ranges, calls, OS calls and work of recorded processes."""
    rows = recorded_rows(machine)
    rows += [(work.start, work.end) for work in recorded_works(machine)]
    return min(start for start, _ in rows), max(end for _, end in rows)


def recorded_rows(machine: Machine) -> list[Interval]:
    """Return start and end of all that the hosts did and that the report shows.

    What the report shows of a process are calls of the operating system alone does not count.
    """
    calls = [(row[0], row[1]) for row in machine.calls if row[3].process.recorded]
    ranges = [(row[0], row[1]) for row in machine.ranges if row[3].process.recorded]
    seen = {row[3].process for row in machine.calls} | {row[3].process for row in machine.ranges}
    os_calls = [
        (row[0], row[1])
        for row in machine.os_calls
        if row[3].process.recorded and row[3].process in seen
    ]
    return calls + ranges + os_calls


def recorded_works(machine: Machine) -> list[Work]:
    """Return the work of processes that the report shows, in order of begin."""
    return [work for work in machine.works() if work.stream.context.process.recorded]


def works_of(gpu: Gpu) -> list[Work]:
    """Return what the report shows of a GPU, in order of begin."""
    works = (work for work in gpu.works if work.stream.context.process.recorded)
    return sorted(works, key=lambda work: work.start)


def state_of(work: Work, *, whole_graphs: bool = False) -> Kind:
    """Return the state of a GPU that runs this work alone."""
    return Kind.GRAPH if whole_graphs and work.graph else work.kind


def states(works: Iterable[Work], span: Interval, *, whole_graphs: bool = False) -> dict[str, int]:
    """Return the time of each state of a GPU within a span; they add up to its length."""
    by_kind: dict[Kind, list[Interval]] = {kind: [] for kind in _ORDER}
    graphs: dict[int, Interval] = {}
    for work in works:
        kind = state_of(work, whole_graphs=whole_graphs)
        if kind is Kind.GRAPH:
            first, last = graphs.get(work.correlation, (work.start, work.end))
            graphs[work.correlation] = min(first, work.start), max(last, work.end)
        else:
            by_kind[kind].append((work.start, work.end))
    by_kind[Kind.GRAPH] += graphs.values()
    result, covered, all_of_them = {}, 0, []
    for kind in _ORDER:
        all_of_them += by_kind[kind]
        length = sum(end - start for start, end in union(all_of_them, span))
        result[kind.value], covered = length - covered, length
    return {**result, IDLE: span[1] - span[0] - covered}


def union(intervals: Sequence[Interval], span: Interval) -> list[Interval]:
    """Return the disjoint intervals, clipped to a span, that these cover together."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        first, last = max(start, span[0]), min(end, span[1])
        if last <= first:
            continue
        if result and first <= result[-1][1]:
            result[-1] = result[-1][0], max(last, result[-1][1])
        else:
            result.append((first, last))
    return result


def gaps(intervals: Sequence[Interval], span: Interval) -> list[Interval]:
    """Return what these intervals leave of a span."""
    result, last = [], span[0]
    for start, end in union(intervals, span):
        if start > last:
            result.append((last, start))
        last = end
    return [*result, (last, span[1])] if last < span[1] else result
