"""Allocations and releases as PyTorch's traces have them: instants ``[memory]`` on the threads that made them."""

from __future__ import annotations

import numpy as np

from bridge.analyze.memory import Held
from bridge.analyze.memory.said import kind_of
from bridge.analyze.timeline.parts import Column, Json, Named, Slices, drawn
from bridge.analyze.tracks import Tracks
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, by, number
from importers import frames

CATEGORY, NAME = "cpu_instant_event", "[memory]"
CPU, CUDA = 0, 1  # types of devices
HOST = frozenset(frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "pinned"))


def instants(joined: Attributed, tracks: Tracks) -> tuple[Slices, ...]:
    """Draw the events of memory; bytes of a release are negative, as they are there.

    Totals are those of a type of device and its number, of all kinds of memory together.
    """
    if not len(joined.report.memory):
        return ()
    held = Held.of(joined)
    events, table = held.events, joined.report.memory
    report, process, thread, device, address = (
        frames.ints(table, c)[events.row]
        for c in ("report", "process", "thread", "device", "address")
    )
    kind = kind_of(held, held.group)
    of = np.where(np.isin(kind, [*HOST]), CPU, CUDA)
    number_of = np.where(of == CPU, NONE, device)
    owner, _ = number(report, process, of, number_of)
    home = tracks.host(report, np.where(thread == NONE, process, thread))
    track = tracks.lane(home, np.zeros(len(events), np.int64), "ops")
    args: dict[str, Column] = {
        "Bytes": held.change,
        "Addr": address,
        "Device Type": of,
        "Device Id": _texts(number_of),
        "Total Allocated": _together(owner, held.group, held.used, held.base),
        "Total Reserved": _reserved(held, owner),
    }
    spans = events.time, np.zeros_like(events.time)
    named = Named(np.zeros(len(events), np.int64), [NAME])
    return (drawn(CATEGORY, np.arange(len(events)), track, spans, named, args),)


def _texts(values: Ints) -> Json:
    """Return integers as JSON, -1 among them, which elsewhere is none."""
    distinct, code = np.unique(values, return_inverse=True)
    return Json(code.astype(np.int64), [str(value) for value in distinct.tolist()])


def _reserved(held: Held, owner: Ints) -> Json:
    """Return what was reserved; where no pool says so 0, as PyTorch has it on the host."""
    known = np.where(held.reserved == NONE, 0, held.reserved)
    return _texts(_together(owner, held.group, known, np.zeros_like(held.base)))


def _together(owner: Ints, group: Ints, level: Ints, base: Ints) -> Ints:
    """Return the sum of the levels of all groups of an owner after each event, from what each has at first."""
    change = np.empty(len(level), np.int64)
    order = by(group, np.arange(len(group)))
    own = group[order]
    first = np.append(True, own[1:] != own[:-1])[: len(own)]
    before = np.append(0, level[order][:-1])[: len(own)]
    change[order] = level[order] - np.where(first, base[own], before)
    order = by(owner, np.arange(len(owner)))
    own = owner[order]
    first = np.flatnonzero(np.append(True, own[1:] != own[:-1])[: len(own)])
    total = np.cumsum(change[order])
    pairs = np.unique(np.stack((owner, group)), axis=1)
    at_first = np.zeros(int(owner.max(initial=-1)) + 1, np.int64)
    np.add.at(at_first, pairs[0], base[pairs[1]])
    earlier = np.repeat((total - change[order])[first], np.diff(np.append(first, len(own))))
    found = np.empty(len(level), np.int64)
    found[order] = total - earlier + at_first[own]
    return found
