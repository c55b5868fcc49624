"""Curves of memory: what each process or device held, by kind, as docs/memory.md counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bridge.analyze.memory import Held
from bridge.analyze.timeline import parts
from bridge.analyze.timeline.parts import Curve, Slices, Span
from bridge.analyze.tracks import Track, Tracks
from bridge.join.attributed import Attributed
from bridge.join.order import NONE
from importers import frames

USED, RESERVED = "used", "reserved"


def of_memory(
    joined: Attributed,
    tracks: Tracks,
    before: Sequence[Track] = (),
    span: Callable[[int], Span] = parts.ever,
) -> list[Slices]:
    """Return the curves of all processes, devices and kinds of memory within a span of time of each report.

    They lie on the first track of their group, ``before`` those of ``tracks`` or among these; where there
    is none, one is made.
    """
    if not len(joined.report.memory):
        return []
    held = Held.of(joined)
    first = {track.group: n for n, track in reversed([*enumerate([*before, *tracks.made])])}
    table, row = joined.report.memory, held.events.row[held.events.groups]
    columns = (frames.ints(table, c)[row].tolist() for c in ("report", "process", "device"))
    keys = zip(*columns, strict=True)
    found = []
    for group, (report, process, device) in enumerate(keys):  # a turn per process, device and kind
        kind = kind_name(held, group)
        home = tracks.group(report, process, device)
        if home not in first:
            first[home] = len(before) + tracks.bare(home, "memory")
        for what, curve in _levels(held, group, joined.report.facts[report].span[0]):
            name = curve_name(kind, what)
            shown = parts.thinned(*parts.within(curve, span(report)))
            found.append(parts.shown(name, [(first[home], shown)]))
    return found


def kind_name(held: Held, group: int) -> str:
    """Return what the kind of a group is called."""
    return frames.MEMORY_KINDS[int(held.kind_of(np.array([group]))[0])]


def curve_name(kind: str, what: str) -> str:
    """Return the name of a curve; its unit is at the end."""
    return f"{kind} memory {what} (bytes)"


def _levels(held: Held, group: int, began: int) -> Iterator[tuple[str, Curve]]:
    """Yield what was used and, where that is known, reserved; used begins with what was held before its capture ``began``."""
    rows = np.flatnonzero(held.group == group)
    if not len(rows):
        return
    time = held.events.time[rows]
    first = min(began, int(time[0]))
    yield USED, (np.append(first, time), np.append(held.base[group], held.used[rows]))
    known = rows[held.reserved[rows] != NONE]
    if len(known):
        yield RESERVED, (held.events.time[known], held.reserved[known])
