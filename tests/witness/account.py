"""How long a run lasted and what each GPU did in it, piece by piece: docs/accuracy.md.

All times are in ns on one clock. An event without an end, or with an end before its start, lasts 0 ns.
A `process` is that of one report on one host; a `gpu` is whatever tells one GPU from another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

WORK = ("compute", "communication", "copy", "other", "graph")  # at each instant the first counts
OTHERS, IDLE = "others", "idle"  # `others`: work of other processes, or work that is not selected
STATES = (*WORK, OTHERS, IDLE)

Span = tuple[int, int]
States = dict[str, int]


class Range(NamedTuple):
    """A push/pop or start/end range; an open one has no end."""

    process: object
    start: int
    end: int | None


class Call(NamedTuple):
    """A call of CUDA or of the operating system."""

    process: object
    start: int
    end: int | None


class Instant(NamedTuple):
    """What has no length: a mark, a sample, a diagnostic, a memory event, the name of a domain."""

    process: object
    time: int


class Activity(NamedTuple):
    """Work on a GPU: its state (one of `WORK`), and when the call that launched it began."""

    process: object
    gpu: object
    start: int
    end: int
    state: str
    launch: int | None = None


class Events(NamedTuple):
    """All that was recorded on one clock."""

    ranges: Sequence[Range] = ()
    calls: Sequence[Call] = ()
    os_calls: Sequence[Call] = ()
    activities: Sequence[Activity] = ()
    instants: Sequence[Instant] = ()


class Account(NamedTuple):
    """The span, and the time in each state of each GPU, and of each process on each of its GPUs."""

    start: int
    end: int
    gpus: dict[object, States]
    processes: dict[tuple[object, object], States]


def finish(event: Range | Call | Activity) -> int:
    """Return when an event ended."""
    return event.start if event.end is None else max(event.start, event.end)


def hull(events: Iterable[Range | Call | Activity]) -> Span | None:
    """Return the first start and the last end."""
    spans = [(one.start, finish(one)) for one in events]
    return (min(s for s, _ in spans), max(e for _, e in spans)) if spans else None


def clipped(span: Span, window: Span) -> Span:
    """Return the part of a span that lies in a window."""
    start = min(max(span[0], window[0]), window[1])
    return start, max(start, min(span[1], window[1]))


def run(events: Events, collection: Span | None = None) -> Span | None:
    """Return the start and the end of the run, or None where nothing was recorded.

    A process counts if it has ranges, API calls or activities; then its OS calls count, too.
    """
    counted = {one.process for one in (*events.ranges, *events.calls, *events.activities)}
    of_system = [one for one in events.os_calls if one.process in counted]
    whole = hull([*events.ranges, *events.calls, *events.activities, *of_system])
    return clipped(whole, collection) if whole and collection else whole


def states(own: Sequence[Activity], others: Sequence[Activity], span: Span) -> States:
    """Return the time in each state of one GPU; the times add up to the span."""
    edges = {time for one in (*own, *others) for time in (one.start, finish(one))}
    inside = sorted({*span} | {time for time in edges if span[0] < time < span[1]})
    found = dict.fromkeys(STATES, 0)
    for start, end in pairwise(inside):
        running = {one.state for one in own if one.start <= start and end <= finish(one)}
        foreign = any(one.start <= start and end <= finish(one) for one in others)
        first = next((state for state in WORK if state in running), OTHERS if foreign else IDLE)
        found[first] += end - start
    return found


def hidden(own: Sequence[Activity], span: Span) -> States:
    """Return how long work of each state ran while an earlier state counted."""
    counted = states(own, [], span)
    alone = {s: states([one for one in own if one.state == s], [], span)[s] for s in WORK}
    return {state: alone[state] - counted[state] for state in WORK}


def account(events: Events, collection: Span | None = None) -> Account | None:
    """Return the account of the run: each GPU with activities, each process on each of its GPUs."""
    span = run(events, collection)
    return of_selection(events.activities, [], span) if span else None


def of_selection(chosen: Sequence[Activity], rest: Sequence[Activity], span: Span) -> Account:
    """Return the account of the chosen work in a span; all other work is the state `others`.

    A GPU, or a process on a GPU, is listed if it has chosen work.
    """
    gpus: dict[object, States] = {}
    processes: dict[tuple[object, object], States] = {}
    for one in chosen:
        here = [other for other in chosen if other.gpu == one.gpu]
        unchosen = [other for other in rest if other.gpu == one.gpu]
        if one.gpu not in gpus:
            gpus[one.gpu] = states(here, unchosen, span)
        if (one.process, one.gpu) not in processes:
            own = [other for other in here if other.process == one.process]
            foreign = [other for other in here if other.process != one.process]
            processes[one.process, one.gpu] = states(own, [*foreign, *unchosen], span)
    return Account(*span, gpus, processes)


def launched_in(activity: Activity, chosen: Sequence[Range]) -> bool:
    """Tell whether the launch of some work began in one of the ranges, on any thread of its process.

    Work without a recorded launch belongs to no range.
    """
    return activity.launch is not None and any(
        one.process == activity.process and one.start <= activity.launch < finish(one)
        for one in chosen
    )


def of_ranges(events: Events, chosen: Sequence[Range]) -> Account | None:
    """Return the account of `--step` and `--range`: these ranges and the work launched in them.

    The span is the hull of both.
    """
    work = [one for one in events.activities if launched_in(one, chosen)]
    rest = [one for one in events.activities if not launched_in(one, chosen)]
    span = hull([*chosen, *work])
    return of_selection(work, rest, span) if span else None


def in_window(events: Events, window: Span) -> Events:
    """Return what `--from` and `--to` choose: host events that began in the window, device work clipped to it."""
    first, last = window

    def began(time: int) -> bool:
        return first <= time < last

    work = []
    for one in events.activities:
        if one.start < last and (finish(one) > first or one.start >= first):
            start, end = clipped((one.start, finish(one)), window)
            work.append(one._replace(start=start, end=end))
    return Events(
        [one for one in events.ranges if began(one.start)],
        [one for one in events.calls if began(one.start)],
        [one for one in events.os_calls if began(one.start)],
        work,
        [one for one in events.instants if began(one.time)],
    )


def of_window(
    events: Events,
    first: int | None = None,
    last: int | None = None,
    collection: Span | None = None,
) -> Account | None:
    """Return the account of `--from` and `--to`, of which either may lack: the span is the window.

    No window reaches beyond the run. Work in the window is own work, whoever launched it and when.
    """
    whole = run(events, collection)
    if whole is None:
        return None
    window = clipped(
        (whole[0] if first is None else first, whole[1] if last is None else last), whole
    )
    return of_selection(in_window(events, window).activities, [], window)
