"""Budgets: what a report may take, as a whole and per op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd

from bridge.analyze.breakdown import of_ranges
from bridge.analyze.filters import wildcards
from bridge.analyze.totals import Totals
from bridge.gates.limit import Limit
from bridge.gates.verdict import Verdict
from bridge.join.order import NONE

WHOLE = TOTAL, UNATTRIBUTED = ("total", "unattributed")
OPS = "ops"
WORDS = ("bound", "formula")
FIGURES = tuple(name for name in of_ranges.COLUMNS if name not in WORDS)  # of these all are numbers
OF_HOST = frozenset(
    "calls host_ns api_ns sync_ns flop flop_once moved_bytes intensity uncounted".split()
)
UNKNOWN, IDLE = ("not known in this report", "no time on a GPU in this report: nothing to judge")


@dataclass(frozen=True)
class Budget:
    """Limits of the ``whole`` by `WHOLE`, and by the op's name (``*`` and ``?`` allowed) and the figure."""

    whole: Mapping[str, Limit]
    ops: Mapping[str, Mapping[str, Limit]]

    @classmethod
    def parsed(cls, said: object) -> Budget:
        """Read a budget as its file says it; ValueError, in words for the user, for what is none."""
        told = _mapping(said, "a budget")
        for key in told:
            if key not in (*WHOLE, OPS):
                raise ValueError(f"no {key!r} in a budget: {', '.join((*WHOLE, OPS))}")
        whole = {key: _limit(key, told[key], _unit(key)) for key in WHOLE if key in told}
        ops = _mapping(told.get(OPS, {}), OPS)
        found = cls(whole, {str(name): _of_op(str(name), limits) for name, limits in ops.items()})
        if not (found.whole or found.columns):
            raise ValueError("the budget has no limit")
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table by op that limits are on."""
        return tuple(dict.fromkeys(column for limits in self.ops.values() for column in limits))

    def judged(self, totals: Totals, ops: pd.DataFrame) -> list[Verdict]:
        """Judge a report by its accounting and its table by op; an op that is missing fails."""
        whole = {TOTAL: totals["gpu_ns"], UNATTRIBUTED: totals["gpu_ns"] - totals["attributed_ns"]}
        found = []
        for name, limit in self.whole.items():
            subject, of = f"{name} activity time", totals["gpu_ns"]
            if not of:
                found.append(_unjudged(subject, IDLE))
                continue
            value = 100 * Decimal(whole[name]) / of if limit.unit == "%" else Decimal(whole[name])
            found.append(_verdict(subject, limit, value))
        return [*found, *self._of_ops(ops, ran=totals["gpu_ns"] > 0)]

    def _of_ops(self, ops: pd.DataFrame, *, ran: bool) -> Iterator[Verdict]:
        for pattern, limits in self.ops.items():
            meets = wildcards(pattern).fullmatch
            rows = [row for row, op in enumerate(ops["op"].tolist()) if meets(op)]
            if not rows:
                yield _unjudged(
                    pattern, "no such op in the report; bridge report --by op lists them"
                )
            for column, limit in limits.items():
                values = ops[column].tolist()
                for row in rows:
                    subject = f"{ops['op'].iloc[row]} {column.removesuffix('_ns')}"
                    if values[row] == NONE:
                        yield _unjudged(subject, UNKNOWN)
                    elif not (ran or _of_host(column)):
                        yield _unjudged(subject, IDLE)
                    else:
                        exact = Decimal(str(values[row])) * (100 if limit.unit == "%" else 1)
                        yield _verdict(subject, limit, exact)


def _of_op(name: str, said: object) -> dict[str, Limit]:
    limits = {}
    for figure, limit in _mapping(said, name).items():
        column = next((c for c in (figure, f"{figure}_ns") if c in FIGURES), None)
        if column is None:
            listed = ", ".join(c.removesuffix("_ns") for c in FIGURES)
            raise ValueError(f"{name}: no figure {figure!r}: one of {listed}")
        limits[column] = _limit(f"{name} {figure}", limit, _unit(column))
    return limits


def _of_host(column: str) -> bool:
    """Tell whether a figure is one of a report in which nothing ran on a GPU."""
    return column in OF_HOST or column.startswith("cpu_")


def _unit(column: str) -> tuple[str, ...]:
    """Return the units that limits of a column may have."""
    if column == UNATTRIBUTED:
        return ("ns", "%")
    if column.endswith("_ns") or column == TOTAL:
        return ("ns",)
    return ("%",) if column.endswith("share") else ("",)


def _limit(what: str, said: object, units: tuple[str, ...]) -> Limit:
    try:
        limit = Limit.parsed(said)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    if limit.unit not in units:
        wanted = {"ns": "a time (ms, us)", "%": "a share (%)", "": "a bare number"}
        raise ValueError(f"{what}: {limit.text!r} is not {' or '.join(wanted[u] for u in units)}")
    return limit


def _verdict(subject: str, limit: Limit, value: Decimal) -> Verdict:
    passed = limit.allows(value)
    over = "" if passed else "over " if limit.high is not None and value >= limit.high else "under "
    line = f"{subject}: {limit.written(value)}, {over or 'within '}the budget of {limit.text}"
    return Verdict("budget", subject, passed, line, limit.note(value) if passed else "")


def _unjudged(subject: str, reason: str) -> Verdict:
    """Fail what cannot be judged: a build is not to pass because a capture lacks something."""
    return Verdict("budget", subject, passed=False, line=f"{subject}: {reason}")


def _mapping(said: object, what: str) -> Mapping[str, Any]:
    if said is None or not isinstance(said, Mapping):
        raise ValueError(f"{what}: a mapping is needed, as {{aten::mm: {{gpu_total: 3.2ms ± 5%}}}}")
    return said
