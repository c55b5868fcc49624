"""Checks that fail a build: limits of growth (``--fail-over``) and budgets (``--budget``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from bridge.analyze.compare import Comparison, overall
from bridge.analyze.compare.overall import Overall
from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.core.filters import wildcard_pattern
from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import Totals
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.knowledge.amounts import NS, parse_amount, time_text
from bridge.knowledge.suggestions import remedy, unknown_name

# -- Amounts: times, counts and shares


def amount_text(value: Decimal | int, unit: str) -> str:
    """Return an amount as text: a time in ``ns`` with a readable unit, else a plain number."""
    return time_text(float(value)) if unit == NS else f"{float(value):,.6g}".replace(",", " ")


# -- Results


@record
class Change:
    """A time before and after, in ns: of the whole report, or the mean per step.

    ``ratio_low`` and ``ratio_high`` bound the ratio of the means per step with 95 % confidence, -1
    where the steps were not tested. ``steps_before`` is the number of steps of the report before
    if the times are per step, else 0.
    """

    before_ns: float
    after_ns: float
    ratio_low: float
    ratio_high: float
    state: str
    steps_before: int

    @property
    def text(self) -> str:
        """The two times and the change in per cent: ``2.000 ms -> 3.000 ms (+50.0 %)``."""
        before, after = (amount_text(Decimal(ns), "ns") for ns in (self.before_ns, self.after_ns))
        change = percent_text(self.after_ns / self.before_ns) if self.before_ns else "new"
        if not self.after_ns and self.before_ns:
            change = "vanished"
        return f"{before} -> {after}{' per step' if self.steps_before else ''} ({change})"

    @property
    def interval_text(self) -> str:
        """The interval of the change per step and what it means, '' if the steps were not tested."""
        if self.ratio_low == NONE:
            return ""
        low, high = map(percent_text, (self.ratio_low, self.ratio_high))
        interval = f"95 % interval {low.removesuffix(' %')} to {high}"
        return f", {'' if self.steps_before else 'per step '}{interval}: {self.state}"


def percent_text(ratio: float) -> str:
    """Return a ratio as a change in per cent with its sign."""
    return f"{100 * (ratio - 1) + 0.0:+.1f} %"


@record
class Verdict:
    """The result of one check: the gate, the subject, whether it passed, and a line of text.

    ``note`` is a remark on a check that passed, '' mostly. ``change`` is what a limit of growth
    judged, None for budgets.
    """

    gate: str
    subject: str
    passed: bool
    line: str
    note: str = ""
    change: Change | None = None


# -- One limit of a budget: ``3.2ms ± 5%``, ``<= 24``, ``3ms..4ms``

PLUS_MINUS = re.compile(r"\s*(?:±|\+-|\+/-)\s*")
COMPARED = re.compile(r"\s*(<=|>=|<|>|=)?\s*(.*?)\s*")
GRAMMAR = "write 3.2ms, 3.2ms ± 5%, <= 24, >= 10%, = 24 or 3ms..4ms"


@record
class Limit:
    """The allowed values: from ``low`` to ``high`` (None: unlimited), including both ends.

    ``strict`` excludes them. ``roomy`` is the value below which a budget could be lowered, None
    without a tolerance.
    """

    text: str
    unit: str
    low: Decimal | None = None
    high: Decimal | None = None
    strict: bool = False
    roomy: Decimal | None = None

    @classmethod
    def parsed(cls, value_given: object) -> Limit:
        """Read a limit. Raises ValueError with a message for the user if it is not valid."""
        if type(value_given) not in (str, int, float):  # bool is no number here
            raise ValueError(f"a {type(value_given).__name__} is no limit: {GRAMMAR}")
        text = " ".join(str(value_given).split())
        if ".." in text:
            return _parse_interval(text)
        value, *tolerance = PLUS_MINUS.split(text, maxsplit=1)
        sign, number = COMPARED.fullmatch(value).groups()  # type: ignore[union-attr]
        result, unit = parse_amount(number)
        if not tolerance:
            return _parse_comparison(text, sign, result, unit)
        if sign not in (None, "<", "<="):
            raise ValueError(f"{text!r}: a tolerance is allowed only with a maximum; {GRAMMAR}")
        room = _tolerance(result, unit, tolerance[0])
        return cls(text, unit, high=result + room, strict=sign == "<", roomy=result - room)

    def allows(self, value: Decimal) -> bool:
        """Return whether a value, in ns or percent like the limit, is within the limit."""
        if self.strict:
            return (self.low is None or value > self.low) and (
                self.high is None or value < self.high
            )
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def note(self, value: Decimal) -> str:
        """Return a remark on a value so low that the limit could be lowered, else ''."""
        low = self.roomy is not None and value < self.roomy
        return f"below {self.text}: the budget could be lowered" if low else ""

    def written(self, value: Decimal) -> str:
        """Return a value as text in the unit of the limit."""
        return f"{float(value):.2f} %" if self.unit == "%" else amount_text(value, self.unit)


def _parse_interval(text: str) -> Limit:
    low, _, high = text.partition("..")
    ends = parse_amount(low), parse_amount(high)
    if ends[0][1] != ends[1][1]:
        raise ValueError(f"{text!r}: both ends need the same unit; {GRAMMAR}")
    if ends[0][0] > ends[1][0]:
        raise ValueError(f"{text!r}: the lower end must come first; {GRAMMAR}")
    return Limit(text, ends[0][1], low=ends[0][0], high=ends[1][0])


def _parse_comparison(text: str, sign: str | None, value: Decimal, unit: str) -> Limit:
    if sign == "=":
        return Limit(text, unit, low=value, high=value)
    if sign in (">", ">="):
        return Limit(text, unit, low=value, strict=sign == ">")
    return Limit(text, unit, high=value, strict=sign == "<")


def _tolerance(value: Decimal, unit: str, tolerance: str) -> Decimal:
    margin, margin_unit = parse_amount(tolerance)
    if margin_unit == "%" and unit != "%":
        return value * margin / 100
    if margin_unit != unit:
        raise ValueError(f"{tolerance!r}: write the tolerance in %, or in the unit of the value")
    return margin


# -- Budgets

TOTAL, UNATTRIBUTED = WHOLE = ("total", "unattributed")
OPS = "ops"
BUDGET = "budget"  # the gate of its verdicts
FIGURE_LIST = "bridge report --columns list"
TEXT_COLUMNS = ("bound", "formula")
NUMBER_COLUMNS = tuple(
    name for name in COLUMNS["ranges"].names if name not in TEXT_COLUMNS
)  # columns of numbers
HOST_COLUMNS = frozenset(
    "calls host_ns api_ns sync_ns flop flop_once moved_bytes intensity uncounted".split()
)
UNKNOWN, IDLE = ("not known in this report", "no time on a GPU in this report: nothing to judge")


@record
class Budget:
    """Limits of the ``whole``, and of ``ops`` by name (``*`` and ``?`` allowed) and column."""

    whole: Mapping[str, Limit]
    ops: Mapping[str, Mapping[str, Limit]]

    @classmethod
    def parsed(cls, document: object) -> Budget:
        """Read a budget. Raises ValueError with a message for the user if it is not valid."""
        entries = _mapping(document, "a budget")
        for key in entries:
            if key not in (*WHOLE, OPS):
                raise ValueError(unknown_name("key of a budget", key, (*WHOLE, OPS)))
        whole = {
            key: _parse_limit(key, entries[key], _allowed_units(key))
            for key in WHOLE
            if key in entries
        }
        ops = _mapping(entries.get(OPS, {}), OPS)
        budget = cls(
            whole, {str(name): _op_limits(str(name), limits) for name, limits in ops.items()}
        )
        if not (budget.whole or budget.columns):
            raise ValueError("the budget has no limit")
        return budget

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table by op that have limits."""
        return tuple(dict.fromkeys(column for limits in self.ops.values() for column in limits))

    def judged(self, totals: Totals, ops: Table) -> list[Verdict]:
        """Check a report by its totals and its table by op; a limit on a missing op fails."""
        whole = {TOTAL: totals["gpu_ns"], UNATTRIBUTED: totals["gpu_ns"] - totals["attributed_ns"]}
        result = []
        for name, limit in self.whole.items():
            subject, gpu_ns = f"{name} activity time", totals["gpu_ns"]
            if not gpu_ns:
                result.append(_budget_unjudged(subject, IDLE))
                continue
            value = (
                100 * Decimal(whole[name]) / gpu_ns if limit.unit == "%" else Decimal(whole[name])
            )
            result.append(_budget_verdict(subject, limit, value))
        return [*result, *self._of_ops(ops, has_gpu_time=totals["gpu_ns"] > 0)]

    def _of_ops(self, ops: Table, *, has_gpu_time: bool) -> Iterator[Verdict]:
        for pattern, limits in self.ops.items():
            matches = wildcard_pattern(pattern).fullmatch
            rows = [row for row, op in enumerate(ops["op"].tolist()) if matches(op)]
            if not rows:
                hint = remedy(pattern, ops["op"].tolist(), "bridge report --by op")
                yield _budget_unjudged(pattern, f"no such op in the report{hint}")
            for column, limit in limits.items():
                values = ops[column].tolist()
                for row in rows:
                    subject = f"{ops['op'][row]} {column.removesuffix('_ns')}"
                    if values[row] == NONE:
                        yield _budget_unjudged(subject, UNKNOWN)
                    elif not (has_gpu_time or _is_host_column(column)):
                        yield _budget_unjudged(subject, IDLE)
                    else:
                        exact = Decimal(str(values[row])) * (100 if limit.unit == "%" else 1)
                        yield _budget_verdict(subject, limit, exact)


def _op_limits(name: str, limits_given: object) -> dict[str, Limit]:
    limits = {}
    for figure, limit in _mapping(limits_given, name).items():
        column = next((c for c in (figure, f"{figure}_ns") if c in NUMBER_COLUMNS), None)
        if column is None:
            message = unknown_name("figure", figure, NUMBER_COLUMNS, FIGURE_LIST)
            raise ValueError(f"{name}: {message}")
        limits[column] = _parse_limit(f"{name} {figure}", limit, _allowed_units(column))
    return limits


def _is_host_column(column: str) -> bool:
    """Return whether a column has values if nothing ran on a GPU."""
    return column in HOST_COLUMNS or column.startswith("cpu_")


def _allowed_units(column: str) -> tuple[str, ...]:
    if column == UNATTRIBUTED:
        return ("ns", "%")
    if column.endswith("_ns") or column == TOTAL:
        return ("ns",)
    return ("%",) if column.endswith("share") else ("",)


def _parse_limit(subject: str, value_given: object, units: tuple[str, ...]) -> Limit:
    try:
        limit = Limit.parsed(value_given)
    except ValueError as error:
        raise ValueError(f"{subject}: {error}") from error
    if limit.unit not in units:
        names_of_units = {"ns": "a time (ms, us)", "%": "a share (%)", "": "a bare number"}
        raise ValueError(
            f"{subject}: {limit.text!r} is not {' or '.join(names_of_units[u] for u in units)}"
        )
    return limit


def _budget_verdict(subject: str, limit: Limit, value: Decimal) -> Verdict:
    passed = limit.allows(value)
    over = "" if passed else "over " if limit.high is not None and value >= limit.high else "under "
    line = f"{subject}: {limit.written(value)}, {over or 'within '}the budget of {limit.text}"
    return Verdict(
        gate=BUDGET,
        subject=subject,
        passed=passed,
        line=line,
        note=limit.note(value) if passed else "",
    )


def _budget_unjudged(subject: str, reason: str) -> Verdict:
    """Return a failed check, as a build must not pass because a capture lacks data."""
    return Verdict(BUDGET, subject, passed=False, line=f"{subject}: {reason}")


def _mapping(value: object, subject: str) -> Mapping[str, Any]:
    if value is None or not isinstance(value, Mapping):
        raise ValueError(
            f"{subject}: a mapping is needed, as {{aten::mm: {{gpu_total: 3.2ms ± 5%}}}}"
        )
    return value


# -- Limits of growth

OP, ITERATION, IDLE_TIME = "op", "iteration", "idle"
SCOPES = (TOTAL, ITERATION, IDLE_TIME, OP)
EVERYTHING = (
    ""  # without a scope: the total, and the iteration where both reports have enough steps
)
MIN_SHARE = 0.01  # of the total time on either side; smaller ops are not checked
NO_TIME = "none in the report after"
NO_ITERATION = "a report has no two steps that follow each other"
NO_GPU = "a report has no timeline of work on a GPU"
NO_OP = (
    f"no op above {100 * MIN_SHARE:.0f} % of the total",
    "was the report after recorded with NVTX? bridge report REPORT --by op lists its ops",
)


@record
class Growth:
    """A limit of growth of one of `SCOPES` or `EVERYTHING`, as a share (``unit`` "%") or a time in ns."""

    scope: str
    number: Decimal
    unit: str
    text: str

    @classmethod
    def parsed(cls, text: str) -> Growth:
        """Read ``5%``, ``2ms``, ``op:5%``, ``iteration:200us`` and the like.

        Raises ValueError with a message for the user if the text is not valid.
        """
        scope, colon, limit = text.rpartition(":")
        if colon and scope.strip() not in SCOPES:
            raise ValueError(f"{text!r}: write 5%, 2ms, or {', '.join(f'{s}:5%' for s in SCOPES)}")
        number, unit = parse_amount(limit)
        if not unit:
            raise ValueError(f"{text!r}: 5% or 5ms? Write the unit")
        return cls(scope.strip(), number, unit, text.strip())

    def allows(self, change: Change) -> bool:
        """Return whether a time may grow so; a limit in ns is of as many steps as before."""
        before, after = Decimal(change.before_ns), Decimal(change.after_ns)
        if self.unit == "%":
            return after - before <= before * self.number / 100
        return (after - before) * (change.steps_before or 1) <= self.number


def judge_growth(
    gates: Sequence[Growth], ops: Comparison, whole: Overall | None = None
) -> list[Verdict]:
    """Check a comparison by ops and as a whole; of the ops those above `MIN_SHARE`.

    If the reports have different numbers of steps, the time per step is checked. A gate fails if
    the report after has nothing to check; without ``whole``, neither iteration nor idle time is known.
    """
    return [verdict for gate in gates for verdict in _judged(gate, ops, whole or Overall())]


def _judged(gate: Growth, ops: Comparison, whole: Overall) -> Iterator[Verdict]:
    is_known = whole.iteration is not None and whole.iteration.is_tested
    if gate.scope in (TOTAL, EVERYTHING):
        subject = "total CPU time of ops" if ops.host else "total activity time"
        total = _change({**ops.whole, **ops.whole_step}, ops)
        known = total if ops.whole["after_ns"] else None
        yield verdict_of(gate, subject, known, NO_TIME)
    if gate.scope == ITERATION or (gate.scope == EVERYTHING and is_known):
        change = _overall_change(whole.iteration, per_step=True)
        yield verdict_of(gate, "iteration time", change, NO_ITERATION)
    if gate.scope == IDLE_TIME:
        change = _overall_change(whole.idle, per_step=whole.idle_per_step)
        yield verdict_of(gate, "GPU idle time", change, NO_GPU)
    if gate.scope == OP:
        large_ops = _large_ops(ops.rows, ops.whole)
        if not large_ops["after_ns"].any():
            yield verdict_of(gate, NO_OP[0], None, NO_OP[1])
            return
        for row in large_ops.records():
            yield verdict_of(gate, str(row["op"]), _change(row, ops))


def _overall_change(change: overall.Change | None, *, per_step: bool) -> Change | None:
    """Return what a limit judges; of a mean over steps a limit in ns is one of a step."""
    if change is None:
        return None
    interval = change.ratio_low, change.ratio_high
    return Change(
        change.before_ns, change.after_ns, *interval, change.state, steps_before=int(per_step)
    )


def _large_ops(ops: Table, whole: Mapping[str, int]) -> Table:
    """Return the ops above `MIN_SHARE` of the total on either side."""
    large = (ops["before_ns"] > MIN_SHARE * whole["before_ns"]) | (
        ops["after_ns"] > MIN_SHARE * whole["after_ns"]
    )
    return ops[large]


def _change(row: Mapping[Any, Any], ops: Comparison) -> Change:
    """Return the change of an op or of the total: per step if the numbers of steps differ."""
    steps = Change(
        before_ns=float(row["step_before_ns"]),
        after_ns=float(row["step_after_ns"]),
        ratio_low=float(row["step_ratio_low"]),
        ratio_high=float(row["step_ratio_high"]),
        state=str(row["state"]),
        steps_before=ops.work[0],
    )
    if ops.unequal_steps and (steps.before_ns or steps.after_ns):
        return steps
    return replace(
        steps, before_ns=int(row["before_ns"]), after_ns=int(row["after_ns"]), steps_before=0
    )


def verdict_of(gate: Growth, subject: str, change: Change | None, reason: str = "") -> Verdict:
    """Return the result of a gate; a change that is not known fails for a reason."""
    name = f"--fail-over {gate.text}"
    if change is None:
        return Verdict(name, subject, passed=False, line=f"{subject}: nothing was judged; {reason}")
    passed = gate.allows(change)
    over = "" if passed else f", over {name}"
    if not passed and gate.unit != "%" and change.steps_before > 1:
        over += f" for {change.steps_before} steps"
    line = f"{subject}: {change.text}{'' if passed else change.interval_text}{over}"
    return Verdict(name, subject, passed, line, change=change)
