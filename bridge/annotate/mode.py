"""Kinds of data that an environment variable selects: ``BRIDGE_MODE=ops,api,memory``, or a number.

A number is the sum of the bits of MXNET_PROFILER_MODE: 1 and 2 for ops, 4 for API calls, 8 for memory.
"""

from __future__ import annotations

import os

from bridge.knowledge.suggestions import unknown_name

VARIABLE = "BRIDGE_MODE"
OPS, API, MEMORY, MODULES, SHAPES = KINDS = ("ops", "api", "memory", "modules", "shapes")
BITS = {1: OPS, 2: OPS, 4: API, 8: MEMORY}


def kinds_of_environment() -> frozenset[str] | None:
    """Return the kinds that the variable selects, None if it is not set.

    Raises ValueError for an unknown kind or number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    return parse_kinds(text) if text else None


def parse_kinds(text: str) -> frozenset[str]:
    """Return the kinds in a list with commas, or those of a number; raises ValueError for others."""
    if text.isascii() and text.isdecimal():
        number = int(text)
        if number > sum(BITS):
            raise ValueError(f"{VARIABLE}={text}: a number is a sum of 1, 2, 4 and 8")
        return frozenset(kind for bit, kind in BITS.items() if number & bit)
    kinds = [part.strip() for part in text.split(",")]
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"{VARIABLE}: {unknown_name('kind', kind, KINDS)}")
    return frozenset(kinds)
