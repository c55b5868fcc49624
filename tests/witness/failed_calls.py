"""Which API calls failed, by the definition of docs/advise.md, in plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NOT_READY = 600  # no error, whoever returns it
ANSWERS = {("cudaDeviceEnablePeerAccess", 704)}
LAUNCHES = {"cudaLaunchKernel", "cuLaunchKernel"}
STICKY = {700}
OUT_OF_MEMORY = 2
REPEATS = "cudaGetLastError"


class Call(NamedTuple):
    """An API call; ``result`` is -1 where it is not known, ``op`` "" for none."""

    process: int
    thread: int
    name: str
    start: int
    end: int
    result: int
    op: str


def failed(calls: Sequence[Call]) -> list[int]:
    """Return the places of the calls whose errors count, in order of time."""
    errors = [
        place
        for place, call in enumerate(calls)
        if call.result > 0
        and call.result != NOT_READY
        and (call.name, call.result) not in ANSWERS
        and not _is_inner(call, calls)
        and (_always(call) or not _succeeds_later(call, calls))
    ]
    errors.sort(key=lambda place: calls[place].start)
    result: list[int] = []
    for number, place in enumerate(errors):
        call = calls[place]
        before = [calls[other] for other in errors[:number]]
        told = any(one.process == call.process and one.result == call.result for one in before)
        if not (call.name == REPEATS and told):
            result.append(place)
    return result


def groups(calls: Sequence[Call]) -> list[tuple[str, int, list[int], int]]:
    """Return function, error, places and number of followers of each kind of failure, in order of time."""
    firsts: dict[tuple[str, int], list[int]] = {}
    followers: list[int] = []
    ended: set[tuple[int, int]] = set()
    for place in failed(calls):
        call = calls[place]
        if (call.process, call.result) in ended:
            followers.append(place)
            continue
        if call.result in STICKY:
            ended.add((call.process, call.result))
        firsts.setdefault((call.name, call.result), []).append(place)
    return [
        (name, number, places, sum(_follows(calls, f, places) for f in followers))
        for (name, number), places in firsts.items()
    ]


def _follows(calls: Sequence[Call], follower: int, places: Sequence[int]) -> bool:
    return any(
        calls[follower].process == calls[place].process
        and calls[follower].result == calls[place].result
        for place in places
    )


def _always(call: Call) -> bool:
    return call.name in LAUNCHES or call.result in STICKY or call.result == OUT_OF_MEMORY


def _is_inner(call: Call, calls: Sequence[Call]) -> bool:
    """Return whether a call ran inside of others, of which the outermost has a known return value."""
    around = [
        one
        for one in calls
        if one is not call
        and one.thread == call.thread
        and one.start <= call.start
        and call.end <= one.end
        and (one.start, one.end) != (call.start, call.end)
    ]
    return bool(around) and max(around, key=lambda one: one.end - one.start).result != -1


def _succeeds_later(call: Call, calls: Sequence[Call]) -> bool:
    return any(
        one.result == 0
        and one.start > call.start
        and (one.thread, one.name, one.op) == (call.thread, call.name, call.op)
        for one in calls
    )
