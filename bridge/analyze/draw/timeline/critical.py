"""Draw the critical path of a run on a track of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bridge.analyze.draw.timeline.parts import NameColumn, Timeline, make_slices
from bridge.analyze.draw.tracks import FIRST_NUMBER, Group, Track
from bridge.analyze.run.critical.run import KINDS, Run
from bridge.join.arrays import NONE, number_groups, repeated
from bridge.join.attributed import AttributedCapture

ROLE = "critical path"
NUMBER = 3 * FIRST_NUMBER  # of the group and its track; those of others are below
GROUP = Group(NUMBER, "Critical path", order=-1)  # above all others


def with_critical_path(attributed: AttributedCapture, timeline: Timeline) -> Timeline:
    """Return a timeline with a slice per element of the critical path, on one track.

    Slices are named by op and kind. Raises ValueError if the clocks of several files differ.
    """
    run = Run.of(attributed)
    elements = run.elements
    names = run.names
    group, rows = number_groups(elements.kind, elements.name)
    pairs = zip(elements.kind[rows].tolist(), elements.name[rows].tolist(), strict=True)
    labels = [
        f"{names[name]}: {KINDS[kind]}" if name != NONE else KINDS[kind] for kind, name in pairs
    ]
    slices = make_slices(
        ROLE,
        np.arange(len(group)),
        track=repeated(len(timeline.tracks), len(group)),
        times=(elements.start, elements.end - elements.start),
        name=NameColumn(group, labels),
        args={
            "op": NameColumn(elements.name, names),
            "element": NameColumn(elements.kind, list(KINDS)),
        },
    )
    track = Track(GROUP, NUMBER, "critical path", 0)
    return replace(timeline, tracks=[*timeline.tracks, track], slices=[*timeline.slices, slices])
