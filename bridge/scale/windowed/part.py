"""A window of a report with its attribution: all work and host time of it count, a range as a call where it begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bridge.analyze.ranks.members import Ranks
from bridge.join.attributed import Attributed
from bridge.join.choices import Choices
from bridge.join.nesting import Nesting, TangledError
from bridge.join.order import NONE, Flags
from importers.errors import ReportError
from importers.nsys.windows import Window


@dataclass(frozen=True)
class Part(Attributed):
    """``begun`` are the ranges that begin in it; others are open in it, or were where a graph was captured.

    ``ranks`` are those of the whole report.
    """

    begun: Flags | None = None
    ranks: Ranks | None = None

    @cached_property
    def listed_ranges(self) -> Flags:
        """Which ranges are ops, and counted: here."""
        listed: Flags = (self.op != NONE) & self.counted_ranges
        return listed if self.begun is None else listed & self.begun


def part(window: Window, choices: Choices, ranks: Ranks) -> Part:
    """Attribute what is in a window; its ranges then have the time alone that they have in it."""
    try:
        joined = Part.of(window.report, choices)
    except TangledError as error:
        raise ReportError(f"{window.report.source[0]}: {error}") from error
    found = joined.attribution
    within = replace(found, nesting=_within(found.nesting, *window.edges))
    return replace(joined, attribution=within, begun=window.begun, ranks=ranks)


def _within(nesting: Nesting, first: int, last: int) -> Nesting:
    """Cut what is outside off every node; what is open at any instant inside stays as it is."""
    start, end = (np.clip(c, first, last) for c in (nesting.start, nesting.end))
    return replace(nesting, start=start, end=end)
