"""The own time of ranges, without that of ranges inside them, parted by what their thread was in."""

from __future__ import annotations

import numpy as np

from bridge.analyze.causes.calls import WAITS, ends, kinds
from bridge.analyze.causes.places import Cover
from bridge.join.attributed import Attributed
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints
from importers import frames


def own_times(joined: Attributed) -> tuple[Ints, Ints, Ints]:
    """Return ns outside API calls, in those that do not wait, and in those that do, per node.

    An instant in several calls, one inside the other, counts once: as a wait if any of them waits.
    """
    nesting = joined.attribution.nesting
    called = _inside(joined, np.ones(len(joined.report.launches), bool))
    waited = _inside(joined, np.isin(kinds(joined), WAITS))
    own = _without_inner(nesting, nesting.end - nesting.start)
    return own - called, called - waited, waited


def _inside(joined: Attributed, chosen: Flags) -> Ints:
    """Return how much of each node's own time its thread was inside any of the chosen calls."""
    nesting = joined.attribution.nesting
    start = frames.ints(joined.report.launches, "start")
    columns = (joined.attribution.stack, start, ends(joined))
    cover = Cover.of(*(c if chosen.all() else c[chosen] for c in columns))
    return _without_inner(nesting, cover.within(nesting.stack, nesting.start, nesting.end))


def _without_inner(nesting: Nesting, total: Ints) -> Ints:
    """Return each node's value without those of the nodes right inside it on its own thread."""
    own = total.copy()
    above = nesting.parent
    inner = np.flatnonzero((above != NONE) & (nesting.stack[above] == nesting.stack))
    np.subtract.at(own, above[inner], total[inner])
    return own
