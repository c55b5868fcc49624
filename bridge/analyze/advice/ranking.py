"""Rank advice by what its remedies may save, and count each cause once.

Every nanosecond in which a GPU is idle, or works in vain, has one cause. Findings are taken in the
order of what they may save; each owns the time that it explains. A later one of which half the
time is owned already tells of the same cause, and is named with that of which it is a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.advice.facts import Evidence
from bridge.analyze.advice.rule import SYMPTOM, Advice, LostTime
from bridge.join.arrays import NONE

MOST_SHARED = 0.5  # of the time of a finding, which others may own
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
    for one in in_order(advice):
        owner = owners.of(one.finding.lost) if one.finding.lost is not None else NONE
        if owner == NONE and one.rule.certainty == SYMPTOM:
            owner = _any_cause(result, owners, one)
        if owner == NONE:
            owners.add(one.finding.lost, len(result))
            result.append(one)
        elif one.rule.name != result[owner].rule.name:
            others = (*result[owner].same_time, one.rule.name)
            result[owner] = replace(result[owner], same_time=tuple(dict.fromkeys(others)))
    return result


def _order(one: Advice) -> tuple[bool, bool, float, int]:
    """Sort key: captures that hide most work first, symptoms last."""
    hides = float(str(one.finding.figures.get("hidden_share", 0))) >= MOST_HIDDEN
    is_symptom = one.rule.certainty == SYMPTOM
    return not hides, is_symptom, -one.expected_ns, -one.finding.ceiling_ns


class _Owners:
    """The finding that owns each gap and activity, and the time of each that none owns."""

    def __init__(self, evidence: Evidence) -> None:
        self.idle_left = evidence.idle.gaps.length.copy()
        self.work_left = evidence.time.copy()
        self.of_gap = np.full(len(self.idle_left), NONE)
        self.of_activity = np.full(len(self.work_left), NONE)

    def of(self, lost: LostTime) -> int:
        """Return the finding that owns most of the time if most of it is owned, else NONE."""
        total = int(lost.idle_ns.sum() + lost.work_ns.sum())
        left = np.minimum(self.idle_left[lost.gaps], lost.idle_ns).sum()
        left += np.minimum(self.work_left[lost.activities], lost.work_ns).sum()
        if not total or total - left < MOST_SHARED * total:
            return NONE
        owner = np.concatenate((self.of_gap[lost.gaps], self.of_activity[lost.activities]))
        time = np.concatenate((lost.idle_ns, lost.work_ns))
        is_owned = owner != NONE
        return int(np.bincount(owner[is_owned], time[is_owned]).argmax())

    def add(self, lost: LostTime | None, number: int) -> None:
        """Make a finding the owner of its time, as far as none owns it."""
        if lost is None:
            return
        for left, of, rows, time in (
            (self.idle_left, self.of_gap, lost.gaps, lost.idle_ns),
            (self.work_left, self.of_activity, lost.activities, lost.work_ns),
        ):
            left[rows] -= np.minimum(left[rows], time)
            free = rows[of[rows] == NONE]
            of[free] = number


def _any_cause(listed: Sequence[Advice], owners: _Owners, symptom: Advice) -> int:
    """Return the cause with most of a symptom's time if it has a tenth of it, or another symptom; else NONE."""
    lost = symptom.finding.lost
    symptoms = [n for n, one in enumerate(listed) if one.rule.certainty == SYMPTOM]
    if lost is None or symptoms:
        return symptoms[0] if symptoms else NONE
    owner, time = owners.of_gap[lost.gaps], lost.idle_ns
    is_owned = owner != NONE
    if not is_owned.any() or time[is_owned].sum() < SYMPTOM * time.sum():
        return NONE
    return int(np.bincount(owner[is_owned], time[is_owned]).argmax())
