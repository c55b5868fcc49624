"""Say how many floating-point operations and bytes a call of an op needs, from its arguments alone."""

from __future__ import annotations

from bridge.knowledge.formulas.call import Call, Formula
from bridge.knowledge.formulas.conventions import CONVENTIONS, NAMES, OURS
from bridge.knowledge.formulas.registry import answered, bytes_moved, formula, our_flops, register

# -- The FLOPs of a call, as we count them or as somebody else does


def flops(call: Call, convention: str = OURS) -> int | None:
    """Return the floating-point operations of a call, two for a multiply-add; None where they are not known.

    ``convention`` is one of `NAMES`: others count as docs/flops.md says. Raises ValueError for none of them.
    """
    if convention == OURS:
        return our_flops(call)
    if convention not in CONVENTIONS:
        raise ValueError(f"no convention {convention!r}: one of {', '.join(NAMES)}")
    return answered(CONVENTIONS[convention].flops, call)


# -- Say how many floating-point operations and bytes a call of an op needs, from its arguments alone


__all__ = ["Call", "Formula", "bytes_moved", "flops", "formula", "register"]
