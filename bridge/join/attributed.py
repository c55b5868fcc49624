"""A report with every activity attributed: what all analyses read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd

from bridge.join import labels
from bridge.join.adoption import with_adoption
from bridge.join.attribution import (
    INVALID_TIME,
    Activities,
    Attribution,
    Creations,
    Launches,
    Ranges,
    attribute,
    calls_of,
)
from bridge.join.choices import Choices
from bridge.join.directions import Directions
from bridge.join.domains import accepted
from bridge.join.graphs import NodeEvents, creation_of
from bridge.join.modules import Modules
from bridge.join.order import NONE, Flags, Ints
from bridge.join.paths import paths
from bridge.join.steps import Steps
from importers import frames
from importers.report import Report

T = TypeVar("T")
DEFAULT = Choices()
KEY = ("report", "process", "correlation")
DIRECTIONS = FORWARD, BACKWARD, BOTH = ("forward", "backward", "both")
CALL_ID = 0x4E42  # "NB" in the top 16 bits of a payload: an id that all slices of one call share
CALL_ID_SHIFT = 48


@dataclass(frozen=True)
class Attributed:
    """A report, its attribution, and the op of every range.

    ``ops`` are the distinct names; ``op`` is a code into them per range, NONE for a range that is
    no op (a phase, a library's own range).
    """

    report: Report
    attribution: Attribution
    ops: tuple[str, ...]
    op: Ints
    direction: str = BOTH

    @classmethod
    def of(cls, report: Report, choices: Choices = DEFAULT) -> Attributed:
        """Attribute a report's activities to ops (or to raw texts)."""
        names, codes = _raw(report) if choices.raw else _ops(report, choices.rules)
        stacked = frames.is_kind(report.ranges, frames.PUSH_POP)  # phases are never on a stack
        is_op = stacked & accepted(report.ranges, choices.only, choices.without)
        launches = _filled(Launches, report.launches)
        attribution = attribute(
            _filled(Activities, report.activities),
            launches,
            _filled(Ranges, report.ranges, is_op=is_op),
            _filled(Creations, report.graph_nodes, of=_creations(report)),
            prefer_capture=choices.prefer_capture,
        )
        if choices.adopt:
            of_range = frames.ints(report.ranges, "report"), frames.ints(report.ranges, "process")
            attribution = with_adoption(attribution, of_range, launches)
        return cls(report, attribution, tuple(names), np.where(is_op, codes, NONE))

    def only(self, direction: str) -> Attributed:
        """Return what analyses count of one direction: "forward", "backward", or "both".

        Accounting and paths stay those of the whole. Raises ValueError for another word.
        """
        if direction not in DIRECTIONS:
            raise ValueError(f"no direction {direction!r}: one of {', '.join(DIRECTIONS)}")
        return replace(self, direction=direction)

    @cached_property
    def duration(self) -> Ints:
        """Time of each activity in ns; 0 where its end makes no sense."""
        a = self.report.activities
        length = frames.ints(a, "end") - frames.ints(a, "start")
        return np.where(self.attribution.reason == INVALID_TIME, 0, length)

    @property
    def end(self) -> Ints:
        """End of each activity in ns; its start where it makes no sense."""
        return frames.ints(self.report.activities, "start") + self.duration

    @cached_property
    def directions(self) -> Directions:
        """What is forward and what backward, and how they belong together."""
        return Directions.of(self.report, self.attribution.nesting)

    @cached_property
    def belongs(self) -> Ints:
        """The node that each node's work belongs to: the forward range's, else its own."""
        forward, nesting = self.directions.forward, self.attribution.nesting
        first = nesting.first_nodes(len(self.report.ranges))
        return np.where(forward == NONE, np.arange(len(nesting)), np.append(first, NONE)[forward])

    @cached_property
    def modules(self) -> Modules:
        """The modules that ranges run in."""
        nesting = self.attribution.nesting
        return Modules.of_report(self.report, nesting, self.node_op, self.ops)

    @cached_property
    def steps(self) -> Steps:
        """The steps of the run."""
        return Steps.of(self.report)

    @cached_property
    def activity_step(self) -> Ints:
        """The step that each activity was launched in (without a launch: ran in), or NONE."""
        activities, launch = self.report.activities, self.attribution.launch
        issued = np.append(frames.ints(self.report.launches, "start"), 0)[launch]
        when = np.where(launch == NONE, frames.ints(activities, "start"), issued)
        of, process = (frames.ints(activities, c) for c in ("report", "process"))
        return self.steps.at(of, process, when)

    @cached_property
    def listed(self) -> Flags:
        """Which nodes are of a range of the direction that is counted."""
        if self.direction == BOTH:
            return np.ones(len(self.attribution.nesting), bool)
        of_range: Flags = self.directions.ranges == (self.direction == BACKWARD)
        return of_range[self.attribution.nesting.range]

    @cached_property
    def listed_ranges(self) -> Flags:
        """Which ranges are ops, and of the direction that is counted."""
        listed: Flags = self.op != NONE
        if self.direction != BOTH:
            listed &= self.directions.ranges == (self.direction == BACKWARD)
        return listed

    @cached_property
    def node(self) -> Ints:
        """The node that owns each activity, NONE for what has none or is not counted."""
        node = self.attribution.node
        return node if self.direction == BOTH else np.where(self.counted, node, NONE)

    @cached_property
    def counted(self) -> Flags:
        """Which activities are counted: all, or those of the direction; what has no op has none."""
        if self.direction == BOTH:
            return np.ones(len(self.attribution.node), bool)
        node, backward = self.attribution.node, self.directions.backward
        counted: Flags = np.append(backward == (self.direction == BACKWARD), False)[node]
        return counted

    def calls_of(self, report: Ints, process: Ints, correlation: Ints) -> Ints:
        """Return the row of the API call that each (report, process, correlation id) leads to, or NONE."""
        return calls_of(report, process, correlation, _filled(Launches, self.report.launches))

    @cached_property
    def wait_node(self) -> Ints:
        """The node that was open where each wait was called, or NONE."""
        found, launches = self.attribution, self.report.launches
        call = self.calls_of(*(frames.ints(self.report.waits, c) for c in KEY))
        there = np.flatnonzero(call != NONE)
        node = np.full(len(call), NONE)
        when = frames.ints(launches, "start")[call[there]]
        node[there] = found.nesting.innermost(found.stack[call[there]], when)
        return node

    @cached_property
    def node_op(self) -> Ints:
        """Op of each node of the nesting."""
        return self.op[self.attribution.nesting.range]

    @cached_property
    def activity_op(self) -> Ints:
        """Innermost op of each activity that is counted, or NONE."""
        node = self.node
        return np.where(node == NONE, NONE, np.append(self.node_op, NONE)[node])

    @cached_property
    def call(self) -> Ints:
        """The call of each range that is listed, NONE for the others; slices share one."""
        ranges = self.report.ranges
        rows = np.flatnonzero(self.listed_ranges)
        call = np.full(len(ranges), NONE)
        call[rows] = np.arange(len(rows))
        payload = frames.ints(ranges, "payload")[rows]
        sliced = rows[payload >> CALL_ID_SHIFT == CALL_ID]
        if len(sliced):
            keys = ranges[["report", "process", "domain", "payload"]].iloc[sliced]
            codes = keys.groupby([*keys], sort=False).ngroup().to_numpy()
            call[sliced] = codes + len(rows)
        call[rows] = pd.factorize(call[rows])[0]
        return call

    @cached_property
    def node_path(self) -> tuple[Ints, list[str]]:
        """Path of ops of each node, as a code, and the distinct paths."""
        return paths(self.attribution.nesting, self.node_op, self.ops)


def _creations(report: Report) -> Ints:
    """Return the row of the event that made the graph node of each activity, or NONE."""
    node = frames.ints(report.activities, "graph_node")
    if not len(report.graph_nodes):
        return np.full(len(node), NONE)
    report_of, process = (frames.ints(report.activities, c) for c in ("report", "process"))
    return creation_of(report_of, process, node, _filled(NodeEvents, report.graph_nodes))


def _filled(kind: type[T], table: pd.DataFrame, **given: Flags | Ints) -> T:
    """Make what the join takes of the columns of a frame that go by the same names."""
    names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
    return kind(**{name: frames.ints(table, name) for name in names}, **given)


def _ops(report: Report, rules: Sequence[labels.Rule]) -> tuple[Sequence[str], Ints]:
    column = report.ranges["name"]
    codes, names = pd.factorize(np.array(labels.ops_of(list(column.cat.categories), rules), object))
    return list(names), _through(codes, frames.codes(column))


def _raw(report: Report) -> tuple[Sequence[str], Ints]:
    """Whole texts, as ``domain:text`` where the domain has a name."""
    text, texts = report.texts.factorize()
    domain = report.ranges["domain_name"]
    domains = list(domain.cat.categories)
    text = _through(text, frames.ints(report.ranges, "text"))
    codes, distinct = pd.factorize(text * max(1, len(domains)) + frames.codes(domain))
    pairs = [divmod(pair, max(1, len(domains))) for pair in distinct.tolist()]
    named, names = pd.factorize(
        np.array([labels.prefixed(domains[d], texts[t]) for t, d in pairs], object)
    )
    return list(names), _through(named, codes)


def _through(values: Ints, codes: Ints) -> Ints:
    """Return values[code] per row, NONE for no code."""
    return np.append(values, NONE)[codes].astype(np.int64)
