"""What the plain loops of `witness/account.py` say of any selection, and what a report says, in one form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from witness.account import (
    OTHERS,
    WORK,
    Activity,
    Events,
    Range,
    Span,
    clipped,
    finish,
    hull,
    in_window,
    run,
    states,
)

from bridge.analyze.run.account import ELSEWHERE, Run


class Account(NamedTuple):
    """The whole run and its selected part; per GPU its states and its exposed communication; states per process on it."""

    whole: Span
    part: Span
    gpus: dict[int, dict[str, int]]
    exposed: dict[int, int]
    processes: dict[int, dict[int, dict[str, int]]]


def truth(
    events: Events,
    collected: Span | None = None,
    window: Span | None = None,
    times: Sequence[Sequence[Range]] = (),
) -> Account | None:
    """Return the account of a selection: a window of time, ranges of several selections (what is in all), or both."""
    whole = run(events, told(events, collected))
    if whole is None:
        return None
    work, selected = events.activities, intersection(times) if times else []
    chosen = [one for one in work if not times or belongs(one, selected, work)]
    rest = [one for one in work if not any(one is other for other in chosen)]
    if window:
        chosen, rest = (
            in_window(Events(activities=of), window).activities for of in (chosen, rest)
        )
    part = window or whole
    if times:
        part = hull([*selected, *chosen])
        if part and window:
            part = overlap(part, window)
    part = clipped(part or (whole[0], whole[0]), whole)
    gpus, exposed, processes = {}, {}, {}
    for gpu in {one.gpu for one in chosen}:
        own, others = ([one for one in of if one.gpu == gpu] for of in (chosen, rest))
        gpus[gpu] = states(own, others, part)
        exposed[gpu] = alone(own, [*own, *others], part)
        users = {one.process for one in work if one.gpu == gpu}  # in all of the run
        processes[gpu] = {
            user: states(
                [one for one in own if one.process == user],
                [*others, *(one for one in own if one.process != user)],
                part,
            )
            for user in users
            if len(users) > 1
        }
    return Account(whole, part, gpus, exposed, processes)


def told(events: Events, collected: Span | None) -> Span | None:
    """Return the time of the collection if it can be on the clock of all that was recorded, instants too."""
    recorded = [*events.ranges, *events.calls, *events.os_calls, *events.activities]
    starts = [one.start for one in recorded] + [one.time for one in events.instants]
    ends = [finish(one) for one in recorded] + [one.time for one in events.instants]
    if collected is None or not starts:
        return None
    return collected if max(ends) > 0 and min(starts) < collected[1] else None


def overlap(one: Span, other: Span) -> Span | None:
    """Return what is in both spans; None where they do not meet."""
    start, end = max(one[0], other[0]), min(one[1], other[1])
    return (start, end) if start <= end else None


def intersection(times: Sequence[Sequence[Range]]) -> list[Range]:
    """Return the times that lie in a range of each selection, of the same process."""
    first, *others = times
    found = list(first)
    for other in others:
        found = [
            Range(a.process, max(a.start, b.start), min(finish(a), finish(b)))
            for a in found
            for b in other
            if a.process == b.process and max(a.start, b.start) < min(finish(a), finish(b))
        ]
    return found


def belongs(one: Activity, selected: Sequence[Range], work: Sequence[Activity]) -> bool:
    """Tell whether work was launched in the times; where its process has no launched work at all, whether it began there."""
    at = one.launch
    if at is None and not any(
        other.launch is not None for other in work if other.process == one.process
    ):
        at = one.start
    return at is not None and any(
        of.process == one.process and of.start <= at < finish(of) for of in selected
    )


def alone(own: Sequence[Activity], every: Sequence[Activity], span: Span) -> int:
    """Return how long own communication ran while nothing computed on the GPU, selected or not."""
    edges = {time for one in every for time in (one.start, finish(one))}
    inside = sorted({*span} | {time for time in edges if span[0] < time < span[1]})

    def runs(work: Sequence[Activity], state: str, start: int, end: int) -> bool:
        return any(o.state == state and o.start <= start and end <= finish(o) for o in work)

    return sum(
        end - start
        for start, end in pairwise(inside)
        if runs(own, "communication", start, end) and not runs(every, "compute", start, end)
    )


def said(found: Run) -> Account:
    """Return a run as the product has it in the same form."""
    by_number = {int(re.search(r"GPU (\d+)", gpu.device)[1]): gpu for gpu in found.gpus}
    return Account(
        tuple(found.whole),
        tuple(found.part),
        {number: _states(gpu.states) for number, gpu in by_number.items()},
        {number: gpu.exposed_ns for number, gpu in by_number.items()},
        {
            number: {pid: _states(of) for pid, of in gpu.processes.items()}
            for number, gpu in by_number.items()
        },
    )


def _states(times: dict[str, int]) -> dict[str, int]:
    named = {OTHERS if state == ELSEWHERE else state: ns for state, ns in times.items()}
    return {OTHERS: 0, **named}


def without_idle_ones(true: Account) -> Account:
    """Leave out GPUs and processes without any time of own work: whether work of no length at an edge counts is no matter."""
    kept = {gpu for gpu, of in true.gpus.items() if any(of[state] for state in WORK)}
    return Account(
        true.whole,
        true.part,
        *({gpu: of for gpu, of in by_gpu.items() if gpu in kept} for by_gpu in true[2:]),
    )
