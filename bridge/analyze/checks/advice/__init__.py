"""Advise what slows a run down, with evidence and an estimate of what a change would save.

docs/advise.md lists the rules. A rule without the data that it needs says what would record it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bridge.analyze.checks.advice import (
    compute,
    copies,
    failed,
    host,
    hotspots,
    idle,
    needs,
    no_work,
    patterns,
    waiting,
)
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.needs import WORK, Recorded
from bridge.analyze.checks.advice.places import place_of
from bridge.analyze.checks.advice.ranking import Estimator, Savings, by_cause, in_order, savings
from bridge.analyze.checks.advice.rule import (
    KERNEL_TIME,
    RUN,
    UNKNOWN,
    Advice,
    Finding,
    NotJudged,
    RuleCheck,
)
from bridge.analyze.checks.failures import Failure, failures, hides_causes
from bridge.analyze.core import no_timeline
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.suggestions import unknown_name

# -- All rules, in order of listing


RULES: tuple[RuleCheck, ...] = (
    *failed.RULES,
    *no_work.RULES,
    *waiting.RANK_RULES,
    *host.RULES,
    *copies.RULES,
    *idle.RULES,
    *waiting.RULES,
    *compute.RULES,
    *hotspots.RULES,
    *patterns.RULES,
    *copies.MEMORY_RULES,
    *compute.NSIGHT_COMPUTE_RULES,
    *needs.RULES,
)


# -- Advice


MIN_SHARE = 0.01  # of the run; advice below is counted, but not listed


@dataclass(frozen=True)
class AdviceReport:
    """The advice about a capture, sorted by what a remedy may be expected to save.

    ``small`` is advice that saves less than ``worth`` at most. ``passed`` are rules without a
    finding, ``not_judged`` rules without data. Shares are relative to ``wall_ns``, the run, or in a
    capture without a ``timeline`` the time of its kernels. ``gpus`` is the number of GPUs,
    ``ranges`` that of ranges, and ``has_work`` whether anything ran on a GPU; ``is_part`` tells that
    this is about a part of the time of a capture with work. ``failures`` are what is said before all advice.
    """

    source: tuple[str, ...]
    wall_ns: int
    advice: tuple[Advice, ...]
    small: tuple[Advice, ...]
    passed: tuple[RuleCheck, ...]
    not_judged: tuple[NotJudged, ...]
    timeline: bool = True
    gpus: int = 1
    ranges: int = 0
    has_work: bool = True
    is_part: bool = False
    failures: tuple[Failure, ...] = ()
    savings: Savings = field(default_factory=Savings)


def advise(
    attributed: AttributedCapture, rules: Sequence[RuleCheck] = RULES, worth: float = MIN_SHARE
) -> AdviceReport:
    """Apply rules to a capture; ``worth`` is the share of the run from which advice is listed.

    Of several rules that tell of one cause the first is listed, unless only some of `RULES` are applied.
    """
    evidence = Evidence(attributed)
    recorded = Recorded(evidence)
    estimator = Estimator(evidence) if evidence.has_graph else None
    values: list[Advice] = []
    passed: list[RuleCheck] = []
    not_judged: list[NotJudged] = []
    for rule in rules:
        if need := recorded.lacks(rule):
            not_judged.append(NotJudged(rule, need.missing, need.record))
        elif findings := _findings(rule, evidence, estimator):
            values += findings
        else:
            passed.append(rule)
    only = any(advice.rule.name in no_work.ALONE for advice in values)
    failed_or_lost = failures(attributed)
    if only or hides_causes(failed_or_lost):
        values = [one for one in values if one.rule.is_first or one.rule.name in no_work.ALONE]
    small = [advice for advice in values if 0 <= advice.share < worth]
    listed = [advice for advice in values if not 0 <= advice.share < worth]
    is_all = all(rule in rules for rule in RULES)
    listed = by_cause(listed, estimator) if is_all else in_order(listed, estimator)
    listed = [replace(one, place=place_of(attributed, one.finding.evidence)) for one in listed]
    return AdviceReport(
        source=attributed.capture.source,
        wall_ns=evidence.wall_ns,
        advice=tuple(listed),
        small=tuple(small),
        passed=tuple(passed),
        not_judged=tuple(not_judged),
        timeline=no_timeline.has_timeline(attributed.capture),
        gpus=max(1, len(evidence.gpus)),
        ranges=len(evidence.capture.ranges),
        has_work=recorded.has(WORK) and not only,
        is_part=attributed.selection is not None and not only,
        failures=failed_or_lost,
        savings=savings(listed, estimator) if estimator else Savings(),
    )


def _findings(rule: RuleCheck, evidence: Evidence, estimator: Estimator | None) -> list[Advice]:
    """Return the advice of a rule, which may have several findings; those that save nothing are none."""
    result = rule.find(evidence)
    findings = [result] if isinstance(result, Finding) else list(result or ())
    if estimator:
        findings = [estimator.estimated(finding) for finding in findings]
        findings = [one for one in findings if one.ceiling_ns != 0]
    bounded = [_bounded(finding, evidence.wall_ns) for finding in findings]
    whole = RUN if no_timeline.has_timeline(evidence.capture) else KERNEL_TIME
    remedy = rule.remedy_in(pytorch=evidence.uses_pytorch)
    return [
        Advice(
            rule=rule,
            finding=finding,
            share=_share(finding, evidence.wall_ns),
            whole=whole,
            remedy=remedy,
        )
        for finding in bounded
    ]


def rules_by_name(
    names: Sequence[str], every: Callable[[], tuple[RuleCheck, ...]] = lambda: RULES
) -> tuple[RuleCheck, ...]:
    """Return the rules with these names, all if there are none.

    ``every`` returns all rules, and is asked only if `RULES` are not enough. Raises ValueError with a message for
    the user if there is no such rule.
    """
    rules = {rule.name: rule for rule in RULES}
    if not names or not rules.keys() >= {*names}:
        rules = {rule.name: rule for rule in every()}
    wrong = next((name for name in names if name not in rules), None)
    if wrong is not None:
        raise ValueError(unknown_name("rule", wrong, rules, "bridge advise --list"))
    return tuple(rules[name] for name in names or rules)


def _bounded(finding: Finding, wall_ns: int) -> Finding:
    """Return a finding with savings limited to the run, as sums over threads may be longer."""
    ceiling = min(finding.ceiling_ns, wall_ns)
    return replace(finding, ceiling_ns=ceiling, saving_ns=min(finding.saving_ns, ceiling))


def _share(finding: Finding, wall_ns: int) -> float:
    unknown = finding.ceiling_ns == UNKNOWN or not wall_ns
    return float(UNKNOWN) if unknown else finding.ceiling_ns / wall_ns


__all__ = [
    "MIN_SHARE",
    "RULES",
    "Advice",
    "AdviceReport",
    "Finding",
    "NotJudged",
    "RuleCheck",
    "advise",
    "rules_by_name",
]
