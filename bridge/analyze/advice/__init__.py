"""Advice: what slows a run down, shown by rows of its report, and what removing it would save.

docs/advise.md lists the rules. A rule without the data that it needs says what would record it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bridge.analyze.advice import compute, copies, idle, needs, parallel, patterns, waiting
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.needs import NEEDS, TIMELINE
from bridge.analyze.advice.rule import (
    KERNEL_TIME,
    THE_RUN,
    UNKNOWN,
    Advice,
    Finding,
    NotJudged,
    Rule,
)
from bridge.analyze.metrics import no_timeline
from bridge.join.attributed import Attributed

# -- All rules, in the order in which they are listed


RULES = (
    *waiting.RULES,
    *idle.RULES,
    *copies.RULES,
    *compute.RULES,
    *parallel.RULES,
    *patterns.RULES,
    *copies.MEMORY_RULES,
    *compute.NSIGHT_COMPUTE_RULES,
    *needs.RULES,
)


# -- Advice: what slows a run down, shown by rows of its report, and what removing it would save


WORTH = 0.01  # of the run, below which advice is counted and not listed


@dataclass(frozen=True)
class Advised:
    """What rules say of a report: sorted by what they would save, that of which nothing is known last.

    ``small`` is what would save less than is worth it at most, ``passed`` found nothing, and
    ``not_judged`` lacked data. ``wall_ns`` is the run that shares are of: of a report without a ``timeline``
    the time of its kernels.
    """

    source: tuple[str, ...]
    wall_ns: int
    advice: tuple[Advice, ...]
    small: tuple[Advice, ...]
    passed: tuple[Rule, ...]
    not_judged: tuple[NotJudged, ...]
    timeline: bool = True


def advise(joined: Attributed, rules: Sequence[Rule] = RULES, worth: float = WORTH) -> Advised:
    """Judge a report by rules; ``worth`` is the fraction of the run from which on a ceiling is listed."""
    seen, timeline = Seen(joined), no_timeline.has_timeline(joined.report)
    there = {name: need.there(seen) for name, need in NEEDS.items()}
    found: list[Advice] = []
    passed: list[Rule] = []
    not_judged: list[NotJudged] = []
    for rule in rules:
        missing = next((name for name in rule.needs if not there[name]), None)
        if not timeline and rule.name not in no_timeline.RULES:
            not_judged.append(NotJudged(rule, TIMELINE.missing, TIMELINE.record))
        elif missing is not None:
            not_judged.append(NotJudged(rule, NEEDS[missing].missing, NEEDS[missing].record))
        elif findings := _findings(rule, seen):
            found += findings
        else:
            passed.append(rule)
    found.sort(key=_order)
    listed = [one for one in found if one.share < 0 or one.share >= worth]
    small = [one for one in found if one not in listed]
    return Advised(
        joined.report.source,
        seen.wall_ns,
        tuple(listed),
        tuple(small),
        tuple(passed),
        tuple(not_judged),
        timeline,
    )


def _findings(rule: Rule, seen: Seen) -> list[Advice]:
    """Return what a rule has found: once, or about several things apart."""
    found = rule.find(seen)
    each = [found] if isinstance(found, Finding) else found or ()
    bounded = [_bounded(finding, seen.wall_ns) for finding in each]
    of = THE_RUN if no_timeline.has_timeline(seen.report) else KERNEL_TIME
    return [Advice(rule, finding, _share(finding, seen.wall_ns), of) for finding in bounded]


def named(names: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules of these names, all of none; ValueError, in words for the user, for one that is none."""
    known = {rule.name: rule for rule in RULES}
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise ValueError(f"no rule {wrong!r}: one of {', '.join(known)}")
    return tuple(known[name] for name in names) or RULES


def _bounded(finding: Finding, wall_ns: int) -> Finding:
    """Return a finding that saves no more than the run took: of sums over threads and GPUs some are longer."""
    ceiling = min(finding.ceiling_ns, wall_ns)
    return replace(finding, ceiling_ns=ceiling, saving_ns=min(finding.saving_ns, ceiling))


def _share(finding: Finding, wall_ns: int) -> float:
    unknown = finding.ceiling_ns == UNKNOWN or not wall_ns
    return float(UNKNOWN) if unknown else finding.ceiling_ns / wall_ns


def _order(one: Advice) -> tuple[int, int]:
    return -one.finding.saving_ns, -one.finding.ceiling_ns


__all__ = ["RULES", "WORTH", "Advice", "Advised", "Finding", "NotJudged", "Rule", "advise", "named"]
