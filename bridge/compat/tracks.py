"""Calls on the tracks of a viewer: those of a track nest, and every B has its E.

The invariant: what would cross another call of its track is drawn on a further lane of it; one that ends
when another begins is drawn before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from bridge.compat.calls import Call, outer_first

Track = TypeVar("Track", bound=Hashable)
Open = list[Call]


def laned(
    calls: Iterable[Call], track_of: Callable[[Call], Track]
) -> dict[tuple[Track, int], list[Call]]:
    """Return the calls of each track and lane, outer before inner."""
    lanes: dict[Track, list[Open]] = {}
    found: dict[tuple[Track, int], list[Call]] = {}
    for call in sorted(calls, key=outer_first):
        track = track_of(call)
        number = _lane(lanes.setdefault(track, []), call)
        found.setdefault((track, number), []).append(call)
    return found


def begun_and_ended(calls: Sequence[Call]) -> Iterator[tuple[str, Call, int]]:
    """Give "B" or "E", the call and the time in ns, for calls that nest, outer before inner."""
    above: Open = []
    for call in calls:
        while above and above[-1].end <= call.start:
            yield "E", above[-1], above.pop().end
        yield "B", call, call.start
        above.append(call)
    while above:
        yield "E", above[-1], above.pop().end


def _lane(lanes: list[Open], call: Call) -> int:
    """Open the call on the first lane where it crosses nothing; make one if there is none."""
    for number, above in enumerate(lanes):
        while above and above[-1].end <= call.start:
            above.pop()
        if not above or call.end <= above[-1].end:
            above.append(call)
            return number
    lanes.append([call])
    return len(lanes) - 1
