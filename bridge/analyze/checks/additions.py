"""All checks: those that are built in, and those that other distributions add."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

from bridge.analyze.checks.advice import RULES, Finding, RuleCheck
from bridge.analyze.checks.advice.needs import NEEDS
from bridge.analyze.checks.check import Check
from bridge.analyze.checks.quality import REASONS, Measurement, ReasonCheck
from bridge.analyze.core.table import Table
from bridge.knowledge.entry_points import Addition
from bridge.knowledge.suggestions import unknown_name


class Checks(NamedTuple):
    """Rules of advice on the program, and reasons against the capture."""

    rules: tuple[RuleCheck, ...] = RULES
    reasons: tuple[ReasonCheck, ...] = REASONS


def all_checks(additions: Iterable[Addition]) -> Checks:
    """Return the built-in checks and those of entry points, each a `Check` or several.

    What is no check, has a name that is taken or needs unknown data is left out, with a warning.
    """
    rules = {check.name: check for check in RULES}
    reasons = {check.name: check for check in REASONS}
    for one in additions:
        with one:
            for check in one.value if isinstance(one.value, (list, tuple)) else (one.value,):
                table: dict[str, Any] = reasons if getattr(check, "scale", None) else rules
                if defect := _defect(check, table):
                    one.warn(defect)
                else:
                    source = check.source or one.distribution
                    find = _guarded(check, Addition(one.distribution, f"check {check.name}"))
                    table[check.name] = replace(check, source=source, find=find)
    return Checks(tuple(rules.values()), tuple(reasons.values()))


def _defect(check: object, table: dict[str, Any]) -> str:
    """Return why an object cannot be added to the checks of its kind, '' if it can."""
    if not isinstance(check, Check):
        return f"{check!r} is not a Check"
    if check.name in table:
        return f"there is a check {check.name} already"
    unknown = next((need for need in check.needs if need not in NEEDS), None)
    return "" if unknown is None else f"{check.name}: {unknown_name('need', unknown, NEEDS)}"


def _guarded(check: Check[Any, Any], addition: Addition) -> Callable[[Any], Any]:
    """Return the function of a check; where it fails, or finds what its texts do not fit, it finds nothing."""
    kind = Measurement if check.scale else Finding

    def find(evidence: object) -> Any:
        with addition:
            result = check.find(evidence)
            is_one = check.scale or not isinstance(result, Iterable)
            found = [one for one in ([result] if is_one else result) if one is not None]
            for one in found:
                if not isinstance(one, kind):
                    raise TypeError(f"find returned {one!r}, not a {kind.__name__}")
                for text in (check.text, check.remedy, check.remedy_elsewhere):
                    text.format_map(dict.fromkeys(one.figures, ""))
            plain = [_plain(one) for one in found]
            return (plain[0] if plain else None) if is_one else plain
        return None

    return find


def _plain(found: Any) -> Any:
    """Return what a check found with figures and a table that all outputs can write. Raises TypeError for others."""
    figures = {
        name: getattr(value, "item", lambda v=value: v)() for name, value in found.figures.items()
    }
    numbers = [
        *(value for value in figures.values() if isinstance(value, float)),
        getattr(found, "value", 0),
    ]
    if not all(map(isfinite, numbers)):
        raise TypeError("find returned a number that is not finite")
    if isinstance(found, Measurement):
        return replace(found, figures=figures)
    return replace(found, figures=figures, evidence=Table.of(found.evidence))
