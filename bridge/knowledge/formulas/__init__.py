"""FLOPs and bytes of calls of ops, from their arguments alone."""

from __future__ import annotations

from bridge.knowledge.formulas.call import Call, Formula
from bridge.knowledge.formulas.conventions import CONVENTIONS, NAMES, OURS
from bridge.knowledge.formulas.table import (
    bytes_moved,
    count_or_none,
    flops_by_formula,
    formula,
    register,
)
from bridge.knowledge.suggestions import unknown_name


def flops(call: Call, convention: str = OURS) -> int | None:
    """Return the FLOPs of a call, two per multiply-add; None if unknown.

    ``convention`` is one of `NAMES`; docs/flops.md defines them. Raises ValueError for others.
    """
    if convention == OURS:
        return flops_by_formula(call)
    if convention not in CONVENTIONS:
        raise ValueError(unknown_name("convention", convention, NAMES))
    return count_or_none(CONVENTIONS[convention].flops, call)


__all__ = ["Call", "Formula", "bytes_moved", "flops", "formula", "register"]
