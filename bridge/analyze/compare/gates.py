"""What fails a build: limits of growth between two reports (``--fail-over``), and budgets (``--budget``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd

from bridge.analyze.compare import Comparison
from bridge.analyze.filters import wildcards
from bridge.analyze.tables import range_metrics
from bridge.analyze.totals import Totals
from bridge.join.arrays import NONE

# -- Amounts in gates and budgets: times, counts, shares; read and written

UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
AMOUNT = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)}|%)?")
SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def amount(text: str) -> tuple[Decimal, str]:
    """Return a number and its unit: "%", "ns" (times are returned in ns), or "" for a bare number.

    Raises ValueError for what is none.
    """
    found = AMOUNT.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text.strip()!r} is no amount: write 5%, 3.2ms, 200us or 24")
    number, unit = Decimal(found[1]), found[2] or ""
    return (number * UNITS[unit], "ns") if unit in UNITS else (number, unit)


def written(value: Decimal | int, unit: str) -> str:
    """Return an amount for people: a time (of ``ns``) with its unit, else a plain number."""
    if unit != "ns":
        return f"{float(value):,.6g}".replace(",", " ")
    size = abs(float(value))
    scale, name = next((s for s in SCALES if size >= s[0]), SCALES[-1])
    return f"{float(value) / scale:.3f} {name}" if scale > 1 else f"{float(value):.0f} ns"


# -- What a gate found, in words and figures


@dataclass(frozen=True)
class Verdict:
    """One thing judged: which gate, what of the report, whether it passed, and a line that says so.

    ``note`` is a word on what passed, '' mostly.
    """

    gate: str
    subject: str
    passed: bool
    line: str
    note: str = ""


# -- One limit of a budget: ``3.2ms ± 5%``, ``<= 24``, ``3ms..4ms``

PLUS_MINUS = re.compile(r"\s*(?:±|\+-|\+/-)\s*")
COMPARED = re.compile(r"\s*(<=|>=|<|>|=)?\s*(.*?)\s*")
GRAMMAR = "write 3.2ms, 3.2ms ± 5%, <= 24, >= 10%, = 24 or 3ms..4ms"


@dataclass(frozen=True)
class Limit:
    """What a value may be: between ``low`` and ``high`` (None: any), its ends included unless ``strict``.

    ``roomy`` is the value below which a budget could be lowered, None without a tolerance.
    """

    text: str
    unit: str
    low: Decimal | None = None
    high: Decimal | None = None
    strict: bool = False
    roomy: Decimal | None = None

    @classmethod
    def parsed(cls, said: object) -> Limit:
        """Read a limit; ValueError, in words for the user, for what is none."""
        if type(said) not in (str, int, float):  # above all no bool
            raise ValueError(f"a {type(said).__name__} is no limit: {GRAMMAR}")
        text = " ".join(str(said).split())
        if ".." in text:
            return _between(text)
        value, *tolerance = PLUS_MINUS.split(text, maxsplit=1)
        sign, number = COMPARED.fullmatch(value).groups()  # type: ignore[union-attr]
        found, unit = amount(number)
        if not tolerance:
            return _compared(text, sign, found, unit)
        if sign not in (None, "<", "<="):
            raise ValueError(f"{text!r}: a tolerance goes with a highest value alone; {GRAMMAR}")
        room = _room(found, unit, tolerance[0])
        return cls(text, unit, high=found + room, strict=sign == "<", roomy=found - room)

    def allows(self, value: Decimal) -> bool:
        """Tell whether a value, in ns or per cent where the limit is, is within."""
        if self.strict:
            return (self.low is None or value > self.low) and (
                self.high is None or value < self.high
            )
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def note(self, value: Decimal) -> str:
        """Return a word on a value that is below what was meant, '' otherwise."""
        low = self.roomy is not None and value < self.roomy
        return f"below {self.text}: the budget could be lowered" if low else ""

    def written(self, value: Decimal) -> str:
        """Return a value in the limit's unit."""
        return f"{float(value):.2f} %" if self.unit == "%" else written(value, self.unit)


def _between(text: str) -> Limit:
    low, _, high = text.partition("..")
    ends = amount(low), amount(high)
    if ends[0][1] != ends[1][1]:
        raise ValueError(f"{text!r}: one unit for both ends; {GRAMMAR}")
    if ends[0][0] > ends[1][0]:
        raise ValueError(f"{text!r}: the lower end goes first; {GRAMMAR}")
    return Limit(text, ends[0][1], low=ends[0][0], high=ends[1][0])


def _compared(text: str, sign: str | None, value: Decimal, unit: str) -> Limit:
    if sign == "=":
        return Limit(text, unit, low=value, high=value)
    if sign in (">", ">="):
        return Limit(text, unit, low=value, strict=sign == ">")
    return Limit(text, unit, high=value, strict=sign == "<")


def _room(value: Decimal, unit: str, tolerance: str) -> Decimal:
    room, of = amount(tolerance)
    if of == "%" and unit != "%":
        return value * room / 100
    if of != unit:
        raise ValueError(f"{tolerance!r}: a tolerance in %, or in the unit of the value")
    return room


# -- Budgets: what a report may take, as a whole and per op

TOTAL, UNATTRIBUTED = WHOLE = ("total", "unattributed")
OPS = "ops"
WORDS = ("bound", "formula")
FIGURES = tuple(
    name for name in range_metrics.COLUMNS if name not in WORDS
)  # of these all are numbers
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
                found.append(_budget_unjudged(subject, IDLE))
                continue
            value = 100 * Decimal(whole[name]) / of if limit.unit == "%" else Decimal(whole[name])
            found.append(_budget_verdict(subject, limit, value))
        return [*found, *self._of_ops(ops, ran=totals["gpu_ns"] > 0)]

    def _of_ops(self, ops: pd.DataFrame, *, ran: bool) -> Iterator[Verdict]:
        for pattern, limits in self.ops.items():
            meets = wildcards(pattern).fullmatch
            rows = [row for row, op in enumerate(ops["op"].tolist()) if meets(op)]
            if not rows:
                yield _budget_unjudged(
                    pattern, "no such op in the report; bridge report --by op lists them"
                )
            for column, limit in limits.items():
                values = ops[column].tolist()
                for row in rows:
                    subject = f"{ops['op'].iloc[row]} {column.removesuffix('_ns')}"
                    if values[row] == NONE:
                        yield _budget_unjudged(subject, UNKNOWN)
                    elif not (ran or _of_host(column)):
                        yield _budget_unjudged(subject, IDLE)
                    else:
                        exact = Decimal(str(values[row])) * (100 if limit.unit == "%" else 1)
                        yield _budget_verdict(subject, limit, exact)


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


def _budget_verdict(subject: str, limit: Limit, value: Decimal) -> Verdict:
    passed = limit.allows(value)
    over = "" if passed else "over " if limit.high is not None and value >= limit.high else "under "
    line = f"{subject}: {limit.written(value)}, {over or 'within '}the budget of {limit.text}"
    return Verdict("budget", subject, passed, line, limit.note(value) if passed else "")


def _budget_unjudged(subject: str, reason: str) -> Verdict:
    """Fail what cannot be judged: a build is not to pass because a capture lacks something."""
    return Verdict("budget", subject, passed=False, line=f"{subject}: {reason}")


def _mapping(said: object, what: str) -> Mapping[str, Any]:
    if said is None or not isinstance(said, Mapping):
        raise ValueError(f"{what}: a mapping is needed, as {{aten::mm: {{gpu_total: 3.2ms ± 5%}}}}")
    return said


# -- ``--fail-over``: how much longer than another report one may take, as a whole or in each op

OP = "op"
SCOPES = (TOTAL, OP)
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
