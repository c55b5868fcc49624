"""What a user may choose of how activities are attributed, in one piece to hand through."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.join.grammar import parse
from bridge.knowledge.kernels import Rules
from importers.report import Facts, Report

# -- From the name of a range to its op: what is left when the part that changes per call is off


REGROUPED = re.compile(r"[#{]")  # without one of these no dialect takes an op out of a name


@dataclass(frozen=True)
class Rule:
    r"""Texts that match ``pattern`` belong to op ``op``, in which groups may be used as ``\1``."""

    pattern: re.Pattern[str]
    op: str

    def __call__(self, name: str) -> str | None:
        """Return the op of a name, None where the rule says nothing of it."""
        found = self.pattern.search(name)
        return found.expand(self.op) if found else None


def rules(text: str) -> tuple[Rule, ...]:
    """Read rules from TOML: ``[[rule]]`` tables with ``match`` (a regular expression) and ``op``.

    Raises ValueError that says which rule is wrong and how.
    """
    try:
        entries = tomllib.loads(text).get("rule")
    except RecursionError as error:
        raise ValueError("nested too deeply for rules") from error
    if not isinstance(entries, list) or not entries:
        raise ValueError("no [[rule]] in it")
    found = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or set(entry) != {"match", "op"}:
            raise ValueError(f"rule {number}: needs 'match' and 'op', and nothing else")
        try:
            rule = Rule(re.compile(entry["match"]), entry["op"])
            re.sub(rule.pattern, rule.op, "")
        except (re.error, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise ValueError(f"rule {number}: {error}") from error
        found.append(rule)
    return tuple(found)


def op_of(name: str) -> str:
    """Return the op that a range of this name is a call of."""
    return parse(name).op if REGROUPED.search(name) else name


def ops_of(names: Sequence[str], by: Sequence[Rule] = ()) -> list[str]:
    """Return the op of each name: by the first of the user's rules that matches, else the built-in."""
    return [_first(by, op) for op in map(op_of, names)]


def _first(by: Sequence[Rule], op: str) -> str:
    return next((found for rule in by if (found := rule(op)) is not None), op)


def prefixed(domain: str, text: str) -> str:
    """Return a range's whole text as reports write it over all domains."""
    return f"{domain}:{text}" if domain else text


# -- Which rank a file is of, where the user says how its path tells it (``--rank-from``)


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


# -- What a user may choose of how activities are attributed, in one piece to hand through


GRAPHS = ("capture", "launch")


@dataclass(frozen=True)
class Choices:
    """``rules`` regroup ops; ``raw`` takes whole texts over all domains instead of ops.

    ``graphs`` says whose the work of a CUDA graph is: the op's that it was captured in, where that
    is known, or the one's that launched the graph. Raw texts go by the launch unless told otherwise,
    as NVIDIA's reports do.

    ``domains`` are those whose ranges are ops ("all" for every one), without any all but libraries'
    own; ``without`` are left out of them. ``adopt`` gives work of threads without a range to the
    range that one other thread waits in: a guess by time. ``kernel_rules`` say what kernels are, before
    the built-in ones. ``rank_from`` is a regular expression that finds the rank in the path of a file, ``place``
    the number of the first report among those of the whole run, of which others may be read elsewhere.
    """

    rules: Sequence[Rule] = ()
    raw: bool = False
    graphs: str | None = None
    domains: Sequence[str] = ()
    without: Sequence[str] = ()
    adopt: bool = False
    kernel_rules: Rules | None = None
    rank_from: str | None = None
    place: int = 0

    @property
    def only(self) -> Sequence[str]:
        """Domains whose ranges are ops, as `bridge.join.domains.accepted` takes them."""
        return self.domains or (("all",) if self.raw else ())

    @property
    def prefer_capture(self) -> bool:
        """Whether work of a graph belongs where it was captured."""
        return (self.graphs or GRAPHS[self.raw]) == "capture"
