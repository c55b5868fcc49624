"""What a reason for less trust in a capture is, and what it costs.

The invariant: a reason judges only what applies to a report; what does not is no reason, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.analyze.quality.overhead import Capture

NS, SHARE, COUNT, RATE = "ns", "share", "count", "per second"  # what measures are in


@dataclass(frozen=True)
class Measured:
    """What a reason found: the ``value`` that its cost is of, and the sentence with its figures.

    ``said`` has places in braces for ``figures``, whose names say what they are: ``_ns``, ``_share`` (of 1); else a
    count or a text.
    """

    value: float
    said: str
    figures: Mapping[str, object]


@dataclass(frozen=True)
class Reason:
    """A reason: what is measured, in which unit, up to where it costs nothing, from where on all ``points``, what to do.

    Where less is worse, ``full`` is the lesser. ``find`` returns None where the reason does not apply.
    """

    name: str
    measures: str
    unit: str
    free: float
    full: float
    points: int
    remedy: str
    find: Callable[[Capture], Measured | None]

    def cost(self, value: float) -> int:
        """Return the points that a measure costs: in proportion between ``free`` and ``full``, rounded up."""
        part = (value - self.free) / (self.full - self.free)
        return math.ceil(round(self.points * min(max(part, 0.0), 1.0), 6))


@dataclass(frozen=True)
class Found:
    """A reason that costs something, what was measured, and the points."""

    reason: Reason
    measured: Measured
    cost: int
