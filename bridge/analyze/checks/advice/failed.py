"""The rule for calls of CUDA that failed: it comes first of all, as no figure of a failed run is worth advice."""

from __future__ import annotations

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.checks.failures import FailedCalls, failures
from bridge.analyze.core.failed_calls import failed_rows, results
from bridge.analyze.core.groups import lowest
from bridge.analyze.core.table import Table
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.knowledge import cuda_errors

NAME = "failed-calls"


def failed_calls(evidence: Evidence) -> Finding | None:
    """Find the calls of CUDA that returned an error which nothing answered."""
    found = [one for one in failures(evidence.attributed) if isinstance(one, FailedCalls)]
    if not found:
        return None
    first, others = found[0], len(found) - 1
    figures = {
        "call": first.call,
        "op": f" in {first.op}" if first.op else "",
        "number": first.number,
        "error": first.name,
        "meaning": f": {first.meaning}" if first.meaning else "",
        "calls": first.count,
        "every": first.of,
        "first_ns": first.first_ns,
        "pid": first.pid,
        "followed": first.followed,
        "after": _after(first),
        "others": f"; other failures: {others}, listed below" if others else "",
    }
    return Finding(figures, _table(evidence, failed_rows(evidence.attributed)))


def _after(first: FailedCalls) -> str:
    """Return what came after and before an error that ends all work, "" for others."""
    if not first.sticky:
        return ""
    launch = f"; the last launch before it: {first.after}" if first.after else ""
    op = f" in {first.after_op}" if first.after and first.after_op else ""
    again = f"; later calls that returned it again: {first.followed}" if first.followed else ""
    return f"{again}{launch}{op}"


def _table(evidence: Evidence, rows: Ints) -> Table:
    """Return a row per op, call and error, that which failed first first."""
    calls = evidence.capture.launches
    named, number = calls.name, results(evidence.attributed)[rows]
    call, names = named.codes[rows], list(named.texts)
    pair, first = number_groups(call, number)
    errors = [
        f"{n} {cuda_errors.error(n).name(names[c])}"
        for c, n in zip(call[first].tolist(), number[first].tolist(), strict=True)
    ]
    op = lookup(evidence.attributed.node_op, evidence.attributed.launch_node[rows])
    ops = np.where(op == NONE, len(evidence.attributed.ops), op)
    table = rule.group_rows(
        {
            "op": (ops, [*evidence.attributed.ops, rule.NO_OP]),
            "call": (call, names),
            "error": (pair, errors),
        },
        evidence.call_time[rows],
        rows,
    )
    group, one_of = number_groups(ops, call, number)
    began = lowest(group, calls.start[rows], len(one_of)) - evidence.capture.began
    order = np.argsort(rows)
    place = order[np.searchsorted(rows, table["example"], sorter=order)]
    table = table.assign(first_ns=began[group[place]])
    return table.sort_values("first_ns")


RULES = (
    Check(
        name=NAME,
        title="CUDA calls failed",
        when="an API call returned an error that no later call of the same function, thread and op answered with success;"
        " launches that fail and memory that runs out always count; it comes first",
        text="{call} failed{op}: {calls} of {every} calls returned {number} {error}{meaning}; first at {first_ns},"
        " process {pid}{after}{others}",
        remedy="check what every CUDA call returns, and repair this first: the times of a run that fails say little;"
        " compute-sanitizer finds accesses that are not valid",
        source=NSIGHT_BRIDGE,
        needs=("results",),
        find=failed_calls,
        is_first=True,
    ),
)
