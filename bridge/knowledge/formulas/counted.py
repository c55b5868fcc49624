"""The FLOPs of a call, as we count them or as somebody else does."""

from __future__ import annotations

from bridge.knowledge.formulas import registry
from bridge.knowledge.formulas.call import Call
from bridge.knowledge.formulas.conventions import CONVENTIONS, NAMES, OURS


def flops(call: Call, convention: str = OURS) -> int | None:
    """Return the floating-point operations of a call, two for a multiply-add; None where they are not known.

    ``convention`` is one of `NAMES`: others count as docs/flops.md says. Raises ValueError for none of them.
    """
    if convention == OURS:
        return registry.flops(call)
    if convention not in CONVENTIONS:
        raise ValueError(f"no convention {convention!r}: one of {', '.join(NAMES)}")
    return registry.answered(CONVENTIONS[convention].flops, call)
