"""Why a GPU was idle: the walk back along what let each event happen.

From the next work of the GPU (behind the last one: from the last host event of a process that used it) the walk goes
to what released it, and on from there: work to the work or the call that released it, a wait to what ended it, host
code and calls to what the thread did before. Every instant of the idle interval belongs to the element of the walk
that covers it; where several do, to the one whose `Cause` is smallest. What released a thread but is in no recorded
process cannot be walked: the walk stays on the thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from simulated.device import Gpu, Release, Work
from simulated.host import Cause
from simulated.machine import Machine
from simulated.span import Interval, gaps, run_span, works_of

# Waits that say more than what they wait for.
_TELLING = {Cause.PYTHON_LOCK, Cause.LOADING, Cause.INPUT, Cause.LATE_RANK, Cause.PROFILER}


@dataclass(frozen=True)
class Piece:
    """An interval in which a GPU was idle for one cause; ``name``: of the call, the op, the GPU."""

    start: int
    end: int
    cause: Cause
    name: str


Element = tuple[int, int, Cause, str]


def idle_pieces(machine: Machine, gpu: Gpu) -> list[Piece]:
    """Return why a GPU was idle in every instant that it was, in order of time."""
    span, works = run_span(machine), works_of(gpu)
    result: list[Piece] = []
    following = iter(works)
    next_work = next(following, None)
    for gap in gaps([(work.start, work.end) for work in works], span):
        while next_work is not None and next_work.start < gap[1]:
            next_work = next(following, None)
        if next_work is not None:
            elements = list(_before_work(next_work, gap[0], gpu))
        else:
            elements = list(_behind_all(machine, gpu, gap))
        result += _pieces(elements, gap)
    return result


def _behind_all(machine: Machine, gpu: Gpu, gap: Interval) -> Iterator[Element]:
    """Walk back from the last host event of the processes that used the GPU."""
    last_events = machine.last_events()
    users = {work.stream.context.process for work in gpu.works}
    processes = [p for p in machine.processes if p in users and p.recorded]
    threads = [thread for p in processes for thread in p.threads if thread in last_events]
    last = max(threads, key=lambda thread: last_events[thread])
    end = last_events[last]
    if end < gap[1]:
        yield end, gap[1], Cause.ABSENT, "has ended"
    yield from _walk(Release(end, thread=last), gap[0], gpu)


def _before_work(work: Work, begin: int, gpu: Gpu) -> Iterator[Element]:
    """Walk back from the start of work to an instant."""
    release = work.release
    assert release is not None
    yield release.time, work.start, Cause.LATENCY, ""
    yield from _walk(release, begin, gpu)


def _walk(release: Release, begin: int, gpu: Gpu) -> Iterator[Element]:
    """Give the elements back from what released something to an instant."""
    point: Release | None = release
    while point is not None and point.time > begin:
        if point.work is not None:
            work = point.work
            where = work.stream.context.gpu
            if not work.stream.context.process.recorded:
                yield begin, point.time, Cause.UNKNOWN, "a process that is not recorded"
                return
            if where is not gpu:
                yield work.start, work.end, Cause.WORK_ELSEWHERE, f"GPU {where.number}"
            assert work.release is not None
            yield work.release.time, work.start, Cause.LATENCY, ""
            point = work.release
        else:
            point = yield from _one_segment(point, begin)


def _one_segment(point: Release, begin: int) -> Generator[Element, None, Release | None]:
    """Give the segment of a thread before an instant; return where the walk goes on."""
    thread, time = point.thread, point.time
    assert thread is not None
    segment = thread.segment_at(time)
    if segment is None:
        creator = thread.creator
        if creator is not None and creator.process.recorded:
            return Release(thread.begin, thread=creator)
        yield begin, thread.begin, Cause.ABSENT, "has not begun"
        return None
    release = segment.release
    if release is not None and segment.start < release.time < time and _recorded(release):
        yield release.time, time, segment.cause, segment.name
        if segment.cause in _TELLING:
            yield segment.start, release.time, segment.cause, segment.name
        return release
    yield segment.start, time, segment.cause, segment.name
    return Release(segment.start, thread=thread)


def _recorded(release: Release) -> bool:
    if release.work is not None:
        return True
    assert release.thread is not None
    return release.thread.process.recorded


def _pieces(elements: list[Element], gap: Interval) -> list[Piece]:
    """Return the parts of an interval, each with the smallest cause among the elements that cover it."""
    clipped = [
        (max(start, gap[0]), min(end, gap[1]), cause, name)
        for start, end, cause, name in elements
        if min(end, gap[1]) > max(start, gap[0])
    ]
    edges = sorted({*gap, *(e[0] for e in clipped), *(e[1] for e in clipped)})
    if len(clipped) > 40:  # long walks: elements that follow one another seldom overlap
        return _swept(clipped, edges)
    result: list[Piece] = []
    for start, end in itertools.pairwise(edges):
        covering = [e for e in clipped if e[0] <= start and e[1] >= end]
        best = min(covering, key=lambda e: e[2], default=(0, 0, Cause.UNKNOWN, ""))
        _add(result, Piece(start, end, best[2], best[3]))
    return result


def _swept(elements: list[Element], edges: list[int]) -> list[Piece]:
    begins = sorted(elements, reverse=True)
    active: list[Element] = []
    result: list[Piece] = []
    for start, end in itertools.pairwise(edges):
        while begins and begins[-1][0] <= start:
            active.append(begins.pop())
        active = [e for e in active if e[1] > start]
        best = min(active, key=lambda e: e[2], default=(0, 0, Cause.UNKNOWN, ""))
        _add(result, Piece(start, end, best[2], best[3]))
    return result


def _add(pieces: list[Piece], piece: Piece) -> None:
    """Append a piece, or lengthen the last one by it."""
    last = pieces[-1] if pieces else None
    if last and (last.end, last.cause, last.name) == (piece.start, piece.cause, piece.name):
        pieces[-1] = Piece(last.start, piece.end, piece.cause, piece.name)
    else:
        pieces.append(piece)


__all__ = ["Piece", "idle_pieces"]
