"""From the name of a range to its op: what is left when the part that changes per call is off.

Texts of PyTorch's autograd ranges come with their per-call part already split off by the importer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.join.grammar import parse

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
