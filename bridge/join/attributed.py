"""A report with every activity attributed: what all analyses read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import pandas as pd

from bridge.join import choices
from bridge.join.adoption import Modules, with_adoption
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attribution import (
    INVALID_TIME,
    Activities,
    Attribution,
    Creations,
    Launches,
    NodeEvents,
    Ranges,
    attribute,
    calls_of,
    creation_of,
)
from bridge.join.autograd import Directions
from bridge.join.choices import Choices, ranked
from bridge.join.domains import accepted
from bridge.join.nesting import paths
from bridge.join.repeats import with_repetition
from bridge.join.steps import Steps
from bridge.knowledge.kernels import Rules
from importers import frames
from importers.frames import CALL_ID, CALL_ID_SHIFT
from importers.report import Report

# -- Which rows of a report are counted: those of some time, on the host and on the devices


@dataclass(frozen=True)
class Chosen:
    """A flag per row of five frames."""

    activities: Flags
    ranges: Flags
    launches: Flags
    waits: Flags
    memory: Flags

    def __and__(self, other: Chosen) -> Chosen:
        """Return what both choose."""
        return Chosen(
            self.activities & other.activities,
            self.ranges & other.ranges,
            self.launches & other.launches,
            self.waits & other.waits,
            self.memory & other.memory,
        )


# -- The op of every range: its name without what changes per call, or its whole text


def op_names(report: Report, rules: Sequence[choices.Rule]) -> tuple[Sequence[str], Ints]:
    """Return the ops, and the code of each range's; the user's rules come first."""
    column = report.ranges["name"]
    codes, names = pd.factorize(
        np.array(choices.ops_of(list(column.cat.categories), rules), object)
    )
    return list(names), _through(codes, frames.codes(column))


def raw(report: Report) -> tuple[Sequence[str], Ints]:
    """Return the whole texts, as ``domain:text`` where the domain has a name, and the code of each range's."""
    text, texts = report.texts.factorize()
    domain = report.ranges["domain_name"]
    domains = list(domain.cat.categories)
    text = _through(text, frames.ints(report.ranges, "text"))
    codes, distinct = pd.factorize(text * max(1, len(domains)) + frames.codes(domain))
    pairs = [divmod(pair, max(1, len(domains))) for pair in distinct.tolist()]
    named, names = pd.factorize(
        np.array([choices.prefixed(domains[d], texts[t]) for t, d in pairs], object)
    )
    return list(names), _through(named, codes)


def _through(values: Ints, codes: Ints) -> Ints:
    """Return values[code] per row, NONE for no code."""
    return np.append(values, NONE)[codes].astype(np.int64)


# -- A report with every activity attributed: what all analyses read


T = TypeVar("T")
DEFAULT = Choices()
KEY = ("report", "process", "correlation")
DIRECTIONS = FORWARD, BACKWARD, BOTH = ("forward", "backward", "both")


@dataclass(frozen=True)
class Attributed:
    """A report, its attribution, and the op of every range.

    ``ops`` are the distinct names; ``op`` is a code into them per range, NONE for a range that is
    no op (a phase, a library's own range). What analyses count may be less than there is: one
    ``direction``, the rows that are ``chosen``. ``kernel_rules`` are the user's, of what kernels are;
    ``place`` is the number of the first report in the whole run.
    """

    report: Report
    attribution: Attribution
    ops: tuple[str, ...]
    op: Ints
    direction: str = BOTH
    chosen: Chosen | None = None
    kernel_rules: Rules | None = None
    place: int = 0

    @classmethod
    def of(cls, report: Report, choices: Choices = DEFAULT) -> Self:
        """Attribute a report's activities to ops (or to raw texts)."""
        report = ranked(report, choices.rank_from)
        names, codes = raw(report) if choices.raw else op_names(report, choices.rules)
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
        op = np.where(is_op, codes, NONE)
        more = choices.kernel_rules, choices.place
        return cls(report, attribution, tuple(names), op, BOTH, None, *more)

    def within(self, chosen: Chosen) -> Attributed:
        """Return what analyses count of some time: accounting is of that, attribution stays the whole's."""
        return replace(self, chosen=chosen if self.chosen is None else self.chosen & chosen)

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
    def iterations(self) -> Steps:
        """The steps of the run; of a process whose ranges name none, those in which its work repeats."""
        if not all(facts.timeline for facts in self.report.facts):
            return self.steps  # what repeats there are passes over single kernels
        found = self.attribution
        return with_repetition(self.steps, self.report, found.launch, self.duration, found.nesting)

    @cached_property
    def activity_step(self) -> Ints:
        """The step that each activity was launched in (without a launch: ran in), or NONE."""
        return self._launched_in(self.steps)

    @cached_property
    def activity_iteration(self) -> Ints:
        """The same among `iterations`."""
        return self._launched_in(self.iterations)

    def _launched_in(self, steps: Steps) -> Ints:
        activities, launch = self.report.activities, self.attribution.launch
        issued = np.append(frames.ints(self.report.launches, "start"), 0)[launch]
        when = np.where(launch == NONE, frames.ints(activities, "start"), issued)
        of, process = (frames.ints(activities, c) for c in ("report", "process"))
        return steps.at(of, process, when)

    @cached_property
    def listed(self) -> Flags:
        """Which nodes are of a range that is counted."""
        if self.chosen is None:
            return self.around
        flags: Flags = self.around & self.chosen.ranges[self.attribution.nesting.range]
        return flags

    @cached_property
    def around(self) -> Flags:
        """Which nodes may have work counted under them: of the direction, whenever they began."""
        if self.direction == BOTH:
            return np.ones(len(self.attribution.nesting), bool)
        of_range: Flags = self.directions.ranges == (self.direction == BACKWARD)
        return of_range[self.attribution.nesting.range]

    @cached_property
    def listed_ranges(self) -> Flags:
        """Which ranges are ops, and counted."""
        listed: Flags = (self.op != NONE) & self.counted_ranges
        return listed

    @cached_property
    def node(self) -> Ints:
        """The node that owns each activity, NONE for what has none or is not counted."""
        return np.where(self.counted, self.attribution.node, NONE)

    @cached_property
    def counted(self) -> Flags:
        """Which activities are counted; of one direction, what has no op is not."""
        if self.direction == BOTH:
            return self.accounted
        node, backward = self.attribution.node, self.directions.backward
        counted: Flags = np.append(backward == (self.direction == BACKWARD), False)[node]
        return counted & self.accounted

    @cached_property
    def accounted(self) -> Flags:
        """Which activities the accounting is of: of both directions, those chosen."""
        whole = np.ones(len(self.report.activities), bool)
        return whole if self.chosen is None else self.chosen.activities

    @cached_property
    def whole_ns(self) -> int:
        """Time of all activities that the accounting is of, which shares are of."""
        return int(self.duration[self.accounted].sum())

    @cached_property
    def counted_ranges(self) -> Flags:
        """Which ranges are of the direction and the time that are counted, ops or not."""
        counted = np.ones(len(self.op), bool)
        if self.direction != BOTH:
            counted &= self.directions.ranges == (self.direction == BACKWARD)
        return counted if self.chosen is None else counted & self.chosen.ranges

    @cached_property
    def counted_launches(self) -> Flags:
        """Which API calls are counted; of one direction, what is in no range is not."""
        if self.direction == BOTH:
            return self.accounted_launches
        of_way: Flags = np.append(self.directions.backward == (self.direction == BACKWARD), False)
        return self.accounted_launches & of_way[self.launch_node]

    @cached_property
    def accounted_launches(self) -> Flags:
        """Which API calls their whole time is of: of both directions, those chosen."""
        every = np.ones(len(self.report.launches), bool)
        return every if self.chosen is None else self.chosen.launches

    @cached_property
    def counted_waits(self) -> Flags:
        """Which waits are counted: those chosen, of both directions."""
        every = np.ones(len(self.report.waits), bool)
        return every if self.chosen is None else self.chosen.waits

    def calls_of(self, report: Ints, process: Ints, correlation: Ints) -> Ints:
        """Return the row of the API call that each (report, process, correlation id) leads to, or NONE."""
        return calls_of(report, process, correlation, _filled(Launches, self.report.launches))

    @cached_property
    def launch_node(self) -> Ints:
        """The node that was open where each API call began, or NONE."""
        found, start = self.attribution, frames.ints(self.report.launches, "start")
        return found.nesting.innermost(found.stack, start)

    @cached_property
    def wait_node(self) -> Ints:
        """The node that was open where each wait was called, or NONE."""
        call = self.calls_of(*(frames.ints(self.report.waits, c) for c in KEY))
        node: Ints = np.append(self.launch_node, NONE)[call]
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
