"""All rules, in the order in which they are listed.

A rule is a function and a row beside it; docs/advise.md shows all rows, and a test holds that to them.
"""

from __future__ import annotations

from bridge.analyze.advice import (
    compute,
    copies,
    counters,
    coverage,
    idle,
    memory,
    parallel,
    patterns,
    waiting,
)

MODULES = (waiting, idle, copies, compute, parallel, patterns, memory, counters, coverage)
RULES = tuple(rule for module in MODULES for rule in module.RULES)
