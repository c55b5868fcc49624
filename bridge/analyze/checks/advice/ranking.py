"""What remedies save, by the run that would have been; the order of advice; each cause once.

The saving of a finding is the run less the run with its change, and its ceiling that with as much changed as nobody
could change more. Findings are taken in order, and one that changes mostly what one before it changes tells of the same
cause. Savings do not add up: what the listed changes save together is computed with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import RUN, UNKNOWN, Advice, Finding
from bridge.analyze.checks.check import SYMPTOM
from bridge.analyze.run.critical.graph import Graph
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.interventions import together
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints

ESTIMATED, MAIN, LIMITED, UNRANKED = range(4)  # the order of findings
MOST_HIDDEN = 0.5  # of GPU time, of which a capture may hide the kernels before that comes first
MOST_SHARED = 0.5  # of what a finding changes, that one before it changes
FEW_NS = 10_000  # that go with each wait that is cut: those of the call itself
MIN_RANKED = 0.1  # of the run, which an estimate must save to stand before a larger one of which only the limit is known
MUCH_MORE = 10  # times a smaller estimate, from which on such a limit stands before it
MOST_OF_RUN = 0.5  # that is paid once: such a limit stands before all smaller estimates, too


@record
class Savings:
    """What all listed changes save together in ns: in iterations, and of what is paid once; UNKNOWN without a graph."""

    each_ns: int = UNKNOWN
    once_ns: int = UNKNOWN
    joint_ns: int = UNKNOWN


@record
class Effect:
    """What a change does to a graph: the ``points`` whose delay it shortens, by how many ``ns``, and the waits it cuts."""

    points: Ints
    ns: Ints
    cut: Ints

    @classmethod
    def of(cls, graph: Graph, draft: Draft) -> Effect:
        """Return the effect of a change that a draft of the graph has."""
        gone = graph.delay - draft.delay
        points = np.flatnonzero(gone > 0)
        cut = np.flatnonzero((draft.cross != graph.cross) & (graph.cross != NONE))
        return cls(points, gone[points], cut)

    def of_points(self, points: Ints) -> Ints:
        """Return by how much the delay of each of some points gets shorter."""
        if not len(self.points):
            return np.zeros(len(points), np.int64)
        at = np.minimum(np.searchsorted(self.points, points), len(self.points) - 1)
        return np.where(self.points[at] == points, self.ns[at], 0)


class Estimator:
    """Asks the graph of a run how long it would have been."""

    def __init__(self, evidence: Evidence) -> None:
        self.run = evidence.run
        self._effects: dict[Change, Effect] = {}
        self._known: dict[tuple[Change, ...], int] = {}

    def saving(self, *changes: Change) -> int:
        """Return what some changes save together, in ns; never less than 0."""
        if changes not in self._known:
            self._known[changes] = max(0, self.run.span - self.run.span_of(together(changes)))
        return self._known[changes]

    def shared(self, change: Change, other: Change) -> float:
        """Return the part of what a change takes from the run that another one takes, too: delays, or waits."""
        own, others = self._effect(change), self._effect(other)
        common = float(np.minimum(own.ns, others.of_points(own.points)).sum())
        cuts = np.isin(own.cut, others.cut)
        total = int(own.ns.sum())
        if total <= FEW_NS * len(own.cut):  # a change of waits
            return float(cuts.mean()) if len(cuts) else 0.0
        return common / total

    def _effect(self, change: Change) -> Effect:
        if change not in self._effects:
            draft = Draft.of(self.run.graph)
            draft.annotating = self.run.annotating
            change(draft)
            draft.settle()
            self._effects[change] = Effect.of(self.run.graph, draft)
        return self._effects[change]

    def estimated(self, finding: Finding) -> Finding:
        """Return a finding with its saving and its ceiling."""
        if finding.change is None and finding.limit is None:
            return finding
        saving = self.saving(finding.change) if finding.change else UNKNOWN
        ceiling = (
            self.saving(finding.limit)
            if finding.limit and finding.limit is not finding.change
            else saving
        )
        return replace(finding, saving_ns=saving, ceiling_ns=max(saving, ceiling))


def in_order(advice: Sequence[Advice], estimator: Estimator | None) -> list[Advice]:
    """Return advice in the order of what it saves.

    Of what is paid in each iteration and what is paid once, that comes first of which all of the list saves more.
    """
    together = savings(advice, estimator) if estimator else Savings()
    once_first = together.once_ns > together.each_ns
    return sorted(advice, key=lambda one: _order(one, advice, int(one.finding.once != once_first)))


def _order(one: Advice, advice: Sequence[Advice], part: int) -> tuple[bool | int | float, ...]:
    """Sort key: failures, captures that hide most work, estimates by list, then limits, and observations last."""
    finding = one.finding
    hides = finding.hidden_share >= MOST_HIDDEN
    is_symptom = one.rule.certainty == SYMPTOM
    rank = ESTIMATED if finding.saving_ns > 0 else LIMITED if finding.ceiling_ns > 0 else UNRANKED
    if rank == ESTIMATED and one.saving_share < MIN_RANKED and _is_dwarfed(finding, advice):
        rank = LIMITED
    elif rank == LIMITED and one.is_main and _dwarfs(one, advice):
        rank = MAIN
    by_list = part if rank == ESTIMATED else 0
    return (
        not one.rule.is_first,
        not hides,
        rank,
        is_symptom,
        finding.is_open,
        by_list,
        -max(finding.saving_ns, 0) if rank == ESTIMATED else -max(finding.ceiling_ns, 0),
    )


def _is_dwarfed(finding: Finding, advice: Sequence[Advice]) -> bool:
    """Return whether a main finding without an estimate could save far more."""
    return any(
        one.is_main and one.finding.saving_ns < 0 and _towers(one, finding.saving_ns)
        for one in advice
    )


def _dwarfs(one: Advice, advice: Sequence[Advice]) -> bool:
    """Return whether all estimates are small beside what a finding could save."""
    return _towers(one, max((other.finding.saving_ns for other in advice), default=0))


def _towers(one: Advice, saving_ns: int) -> bool:
    """Return whether a limit is so large that an estimate is small beside it."""
    finding = one.finding
    is_most = finding.once and one.whole == RUN and one.share > MOST_OF_RUN
    return bool(is_most) or finding.ceiling_ns > MUCH_MORE * max(saving_ns, 0)


def by_cause(advice: Sequence[Advice], estimator: Estimator | None) -> list[Advice]:
    """Return advice in order, without what tells of a cause that is listed before it.

    The rules left out are in ``same_time`` of the finding that tells of the cause. Without a graph of the run a finding
    about the kernels of one before it tells of the same cause.
    """
    result: list[Advice] = []
    for one in sorted(advice, key=lambda one: _order(one, advice, 0)):
        causes = [at for at, other in enumerate(result) if other.finding.ceiling_ns > 0]
        if one.rule.certainty == SYMPTOM and causes:
            owner = causes[0]
        else:
            owner = _owner(result, one, estimator) if estimator else _by_kernels(result, one)
        if owner == NONE:
            result.append(one)
        elif one.rule.name != result[owner].rule.name:
            others = (*result[owner].same_time, one.rule.name)
            result[owner] = replace(result[owner], same_time=tuple(dict.fromkeys(others)))
    return in_order(result, estimator)


def _owner(result: Sequence[Advice], one: Advice, estimator: Estimator) -> int:
    """Return the finding that changes most of what another would change, if it is more than `MOST_SHARED`; else NONE."""
    change = one.finding.change or one.finding.limit
    if change is None:
        return NONE
    shares = [
        estimator.shared(change, other.finding.change) if other.finding.change else 0.0
        for other in result
    ]
    most = max(shares, default=0.0)
    return shares.index(most) if most >= MOST_SHARED else NONE


def _by_kernels(result: Sequence[Advice], one: Advice) -> int:
    """Return the first finding with the same largest kernel, or NONE."""
    table = one.finding.evidence
    if "activity" not in table or not len(table):
        return NONE
    kernel = table["activity"][0]
    for at, other in enumerate(result):
        if "activity" in other.finding.evidence and other.finding.evidence["activity"][0] == kernel:
            return at
    return NONE


def savings(advice: Sequence[Advice], estimator: Estimator) -> Savings:
    """Return what the listed changes save together."""
    changes = {
        once: [
            one.finding.change
            for one in advice
            if one.finding.change is not None
            and one.finding.saving_ns > 0
            and one.finding.once == once
        ]
        for once in (False, True)
    }
    each, once = (estimator.saving(*changes[key]) if changes[key] else 0 for key in (False, True))
    both = (
        estimator.saving(*changes[False], *changes[True]) if changes[False] or changes[True] else 0
    )
    return Savings(each, once, both)
