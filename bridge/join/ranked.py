"""Which rank a file is of, where the user says how its path tells it (``--rank-from``).

A regular expression: its group ``rank``, or the first one, is the rank, its group ``host`` the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from importers.report import Facts, Report

RANK, HOST = "rank", "host"
KEY = "rank_from"  # where a report's metadata keep what was found
LONGEST = 9  # digits of a rank


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the expression; ValueError, in words for the user, for one that can tell nothing."""
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    if not found.groups:
        raise ValueError(f"{pattern!r} has no group: (\\d+) is the rank")
    return found


def told(pattern: re.Pattern[str], path: str) -> dict[str, Any]:
    """Return ``rank`` and ``host`` as far as a path tells them; a rank that is no number is none."""
    found = pattern.search(path)
    if found is None:
        return {}
    first = next((n for n in range(1, pattern.groups + 1) if n != pattern.groupindex.get(HOST)), 0)
    rank = found[pattern.groupindex.get(RANK, first)] if first else None
    host = found[HOST] if HOST in pattern.groupindex else None
    is_number = rank is not None and rank.isascii() and rank.isdecimal() and len(rank) <= LONGEST
    return ({RANK: int(rank or 0)} if is_number else {}) | ({HOST: host} if host else {})


def matches(pattern: str, paths: Iterable[str]) -> bool:
    """Tell whether any path tells a rank or a host."""
    expression = compiled(pattern)
    return any(told(expression, path) for path in paths)


def ranked(report: Report, pattern: str | None) -> Report:
    """Return a report whose facts know what the paths of its files tell; ValueError for a wrong expression."""
    if pattern is None:
        return report
    expression = compiled(pattern)
    files = zip(report.facts, report.source, strict=True)
    facts = tuple(_with(f, told(expression, f.path or name)) for f, name in files)
    return replace(report, facts=facts)


def _with(facts: Facts, found: dict[str, Any]) -> Facts:
    return replace(facts, metadata={**facts.metadata, KEY: found}) if found else facts
