"""Which ranges run in the backward pass, and which forward range each of them belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.join.autograd import Calls, inherited, linked
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints, number
from importers import frames
from importers.percall import SEQ, numbers
from importers.report import Report

ENGINE = "autograd::engine::evaluate_function: "  # around each backward call, without its number


@dataclass(frozen=True)
class Directions:
    """Per node: whether it is backward, its forward range (a row, or NONE), whether several threads had one.

    ``ranges`` tells of every range, also of those without a node, whether it is backward.
    """

    backward: Flags
    forward: Ints
    ambiguous: Flags
    ranges: Flags

    @classmethod
    def of(cls, report: Report, nesting: Nesting) -> Directions:
        """Find directions by name and by nesting, forward ranges by sequence number."""
        names = list(report.ranges["name"].cat.categories)
        code = frames.codes(report.ranges["name"])
        named = np.array([parse(name).backward for name in names], bool)[code]
        own = named[nesting.range]
        backward = inherited(nesting, np.where(own, 1, NONE)) == 1
        first = nesting.first_nodes(len(named))
        ranges = np.where(first == NONE, named, np.append(backward, False)[first])
        link, ambiguous = _links(report, first, ranges)
        engine = np.array([name.startswith(ENGINE) for name in names], bool)[code[nesting.range]]
        link, ambiguous = _engines_too(
            nesting, engine, link[nesting.range], ambiguous[nesting.range]
        )
        nearest = inherited(nesting, np.where(link == NONE, NONE, np.arange(len(link))))
        has = (nearest != NONE) & backward
        forward = np.where(has, np.append(link, NONE)[nearest], NONE)
        return cls(backward, forward, has & np.append(ambiguous, False)[nearest], ranges)


def _links(report: Report, first: Ints, backward: Flags) -> tuple[Ints, Flags]:
    """Return the forward range of each range, and whether it is one of several threads'."""
    forward, ambiguous = np.full(len(first), NONE), np.zeros(len(first), bool)
    seq = numbers(report.texts, SEQ)[frames.ints(report.ranges, "text")]
    rows = np.flatnonzero((first != NONE) & (seq != NONE))
    if len(rows):
        columns = ("report", "process", "thread", "start", "end")
        of, process, *own = (frames.ints(report.ranges, c)[rows] for c in columns)
        calls = Calls(number(of, process)[0], own[0], own[1], own[2], seq[rows])
        links = linked(calls, backward[rows])
        forward[rows] = np.append(rows, NONE)[links.forward]
        ambiguous[rows] = links.ambiguous
    return forward, ambiguous


def _engines_too(
    nesting: Nesting, engine: Flags, link: Ints, ambiguous: Flags
) -> tuple[Ints, Flags]:
    """Let the engine's range around a backward call belong where that call does."""
    parent = nesting.parent
    inner = np.flatnonzero((link != NONE) & (parent != NONE))
    inner = inner[engine[parent[inner]] & (link[parent[inner]] == NONE)]
    link, ambiguous = link.copy(), ambiguous.copy()
    link[parent[inner]], ambiguous[parent[inner]] = link[inner], ambiguous[inner]
    return link, ambiguous
