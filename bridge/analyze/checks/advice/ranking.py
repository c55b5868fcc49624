"""Rank advice by what its remedies may save, and count each cause once.

Every nanosecond in which a GPU is idle, or works in vain, has one cause. Findings are taken in the
order of what they may save; each owns the time that it explains. A later one of which half the
time is owned already tells of the same cause, and is named with that of which it is a part; of
another one the part that is owned is taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import Advice, LostTime
from bridge.analyze.checks.check import SYMPTOM
from bridge.join.arrays import NONE

MOST_SHARED = 0.5  # of the time of a finding, which others may own
MOST_SHARED_BY_SYMPTOM = 0.1  # a symptom is told only where hardly any of its time has a cause
MOST_HIDDEN = 0.5  # of GPU time, of which a capture may hide the kernels before that comes first


def in_order(advice: Sequence[Advice]) -> list[Advice]:
    """Return advice in the order of what it may save."""
    return sorted(advice, key=_order)


def by_cause(advice: Sequence[Advice], evidence: Evidence) -> list[Advice]:
    """Return advice in order, without what tells of a cause that is listed before it.

    The rules left out are in ``same_time`` of that which has most of their time.
    """
    owners = _Owners(evidence)
    result: list[Advice] = []
    symptom = NONE
    for one in in_order(advice):
        is_symptom = one.rule.certainty == SYMPTOM
        owner = owners.of(one.finding.lost, MOST_SHARED_BY_SYMPTOM if is_symptom else MOST_SHARED)
        if is_symptom and owner == NONE:
            owner = symptom
        if owner == NONE:
            symptom = len(result) if is_symptom else symptom
            result.append(_reduced(one, owners.add(one.finding.lost)))
        elif one.rule.name != result[owner].rule.name:
            others = (*result[owner].same_time, one.rule.name)
            result[owner] = replace(result[owner], same_time=tuple(dict.fromkeys(others)))
    return in_order(result)


def _order(one: Advice) -> tuple[bool, bool, bool, float, int]:
    """Sort key: failures first, then captures that hide most work; symptoms last."""
    is_symptom = one.rule.certainty == SYMPTOM
    hides = one.finding.hidden_share >= MOST_HIDDEN
    return not one.rule.is_first, not hides, is_symptom, -one.expected_ns, -one.finding.ceiling_ns


def _reduced(one: Advice, left: float) -> Advice:
    """Return advice with the part of its savings that no advice before it has."""
    finding = one.finding
    saving, ceiling = (
        round(ns * left) if ns > 0 else ns for ns in (finding.saving_ns, finding.ceiling_ns)
    )
    share = one.share * left if one.share > 0 else one.share
    return replace(one, finding=replace(finding, saving_ns=saving, ceiling_ns=ceiling), share=share)


class _Owners:
    """The parts of gaps and activities that findings own, and the time of each that none owns."""

    def __init__(self, evidence: Evidence) -> None:
        self.left = evidence.idle.gaps.length.copy(), evidence.time.copy()
        self.owned: list[LostTime] = []

    def of(self, lost: LostTime | None, most_shared: float) -> int:
        """Return the finding that owns most of the time if others own so much of it, else NONE."""
        if lost is None:
            return NONE
        shared = [
            time - np.minimum(left[rows], time)
            for left, (rows, time) in zip(self.left, lost.parts, strict=True)
        ]
        total = sum(int(time.sum()) for _, time in lost.parts)
        if not total or sum(int(part.sum()) for part in shared) < most_shared * total:
            return NONE
        return int(np.argmax([self._overlap(lost, own) for own in self.owned]))

    def _overlap(self, lost: LostTime, own: LostTime) -> int:
        """Return how much time a finding owns of the gaps and activities of another, at most the time of that."""
        result = 0
        for left, (rows, time), (own_rows, own_time) in zip(
            self.left, lost.parts, own.parts, strict=True
        ):
            wanted = np.zeros(len(left), np.int64)
            wanted[rows] = time
            result += int(np.minimum(wanted[own_rows], own_time).sum())
        return result

    def add(self, lost: LostTime | None) -> float:
        """Make a finding the owner of its time, as far as none owns it; return which part of it that is."""
        lost = lost or LostTime()
        taken = [
            np.minimum(left[rows], time)
            for left, (rows, time) in zip(self.left, lost.parts, strict=True)
        ]
        for left, (rows, _), time in zip(self.left, lost.parts, taken, strict=True):
            left[rows] -= time
        self.owned.append(LostTime(lost.gaps, taken[0], lost.activities, taken[1]))
        total = sum(int(time.sum()) for _, time in lost.parts)
        return sum(int(time.sum()) for time in taken) / total if total else 1.0
