"""A report with every activity attributed: what all analyses read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd

from bridge.join import labels
from bridge.join.attribution import (
    INVALID_TIME,
    Activities,
    Attribution,
    Creations,
    Launches,
    Ranges,
    attribute,
)
from bridge.join.choices import Choices
from bridge.join.graphs import NodeEvents, creation_of
from bridge.join.order import NONE, Flags, Ints, number
from bridge.join.paths import paths
from importers import frames
from importers.report import Report

T = TypeVar("T")
DEFAULT = Choices()
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

    @classmethod
    def of(cls, report: Report, choices: Choices = DEFAULT) -> Attributed:
        """Attribute a report's activities to ops (or to raw texts)."""
        names, codes = _raw(report) if choices.raw else _ops(report, choices.rules)
        stacked = frames.is_kind(report.ranges, frames.PUSH_POP)  # phases are never on a stack
        is_op = stacked if choices.raw else stacked & ~_library(report)
        attribution = attribute(
            _filled(Activities, report.activities),
            _filled(Launches, report.launches),
            _filled(Ranges, report.ranges, is_op=is_op),
            _filled(Creations, report.graph_nodes, of=_creations(report)),
            prefer_capture=choices.prefer_capture,
        )
        return cls(report, attribution, tuple(names), np.where(is_op, codes, NONE))

    @cached_property
    def duration(self) -> Ints:
        """Time of each activity in ns; 0 where its end makes no sense."""
        a = self.report.activities
        length = frames.ints(a, "end") - frames.ints(a, "start")
        return np.where(self.attribution.reason == INVALID_TIME, 0, length)

    @cached_property
    def node_op(self) -> Ints:
        """Op of each node of the nesting."""
        return self.op[self.attribution.nesting.range]

    @cached_property
    def activity_op(self) -> Ints:
        """Innermost op of each activity, or NONE."""
        node = self.attribution.node
        return np.where(node == NONE, NONE, np.append(self.node_op, NONE)[node])

    @cached_property
    def call(self) -> Ints:
        """The call of each range that is an op, NONE for the others; slices share one."""
        ranges = self.report.ranges
        rows = np.flatnonzero(self.op != NONE)
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


def _library(report: Report) -> Flags:
    """Which ranges are in a domain that a library annotates itself in; the default one is nobody's."""
    ranges = report.ranges
    code, first = number(*(frames.ints(ranges, c) for c in ("report", "process", "domain")))
    if not frames.ints(ranges, "domain").any():
        return np.zeros(len(ranges), bool)
    library = [
        bool(ranges["domain"].iloc[row])
        and labels.is_library(
            str(ranges["domain_name"].iloc[row]), ranges["name"][code == domain].unique()
        )
        for domain, row in enumerate(first.tolist())
    ]
    return np.array(library)[code]


def _through(values: Ints, codes: Ints) -> Ints:
    """Return values[code] per row, NONE for no code."""
    return np.append(values, NONE)[codes].astype(np.int64)
