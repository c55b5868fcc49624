"""``--fail-over``: how much longer than another report one may take, as a whole or in each op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pandas as pd

from bridge.analyze.compare import Comparison
from bridge.gates.amounts import amount, written
from bridge.gates.verdict import Verdict

TOTAL, OP = SCOPES = ("total", "op")
JUDGED = 0.01  # an op counts from this share of the total time on, on either side
NO_TIME = "none in the report after"
NO_OP = (
    f"no op above {100 * JUDGED:.0f} % of the total",
    "was the report after recorded with NVTX? bridge report --by op lists its ops",
)


@dataclass(frozen=True)
class Growth:
    """A limit of growth: of the total or of each op, as a share (``unit`` "%") or a time in ns."""

    scope: str
    number: Decimal
    unit: str
    text: str

    @classmethod
    def parsed(cls, text: str) -> Growth:
        """Read ``5%``, ``2ms``, ``op:5%`` or ``op:200us``; ValueError, in words for the user, for what is none."""
        scope, colon, limit = text.rpartition(":")
        if colon and scope.strip() not in SCOPES:
            raise ValueError(f"{text!r}: write 5%, 2ms, op:5% or op:200us")
        number, unit = amount(limit)
        if not unit:
            raise ValueError(f"{text!r}: 5% or 5ms? Write the unit")
        return cls(scope.strip() or TOTAL, number, unit, text.strip())

    def allows(self, before: int, after: int) -> bool:
        """Tell whether a time may have become another, in ns; exact."""
        room = before * self.number / 100 if self.unit == "%" else self.number
        return after - before <= room


def judged(gates: Sequence[Growth], ops: Comparison) -> list[Verdict]:
    """Judge a comparison by ops: the change of the whole, or of each op that counts.

    A gate that finds nothing to judge in the report after fails.
    """
    found = []
    for gate in gates:
        if gate.scope == TOTAL:
            whole = "total CPU time of ops" if ops.host else "total activity time"
            before, after = ops.whole["before_ns"], ops.whole["after_ns"]
            found.append(
                _verdict(gate, whole, before, after) if after else _unjudged(gate, whole, NO_TIME)
            )
            continue
        large = _large(ops.rows, ops.whole)
        if not large["after_ns"].any():
            found.append(_unjudged(gate, *NO_OP))
            continue
        rows = zip(large["op"], large["before_ns"], large["after_ns"], strict=True)
        found += [_verdict(gate, str(op), int(before), int(after)) for op, before, after in rows]
    return found


def _large(ops: pd.DataFrame, whole: Mapping[str, int]) -> pd.DataFrame:
    """Return the ops above `JUDGED` of the total on either side."""
    large = (ops["before_ns"] > JUDGED * whole["before_ns"]) | (
        ops["after_ns"] > JUDGED * whole["after_ns"]
    )
    return ops[large]


def _unjudged(gate: Growth, subject: str, more: str) -> Verdict:
    line = f"{subject}: nothing was judged; {more}"
    return Verdict(f"--fail-over {gate.text}", subject, passed=False, line=line)


def _verdict(gate: Growth, subject: str, before: int, after: int) -> Verdict:
    passed = gate.allows(before, after)
    change = f"{100 * (after - before) / before:+.1f} %" if before else "new"
    if not after and before:
        change = "vanished"
    line = f"{subject}: {written(before, 'ns')} -> {written(after, 'ns')} ({change})"
    over = "" if passed else f", over --fail-over {gate.text}"
    return Verdict(f"--fail-over {gate.text}", subject, passed, line + over)
