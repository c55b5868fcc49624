"""The findings of rules of advice, and rows as their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.places import Place
from bridge.analyze.checks.check import Check
from bridge.analyze.core.groups import counts, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.analyze.run.critical.retiming import Change
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges

if TYPE_CHECKING:
    from bridge.analyze.checks.advice.facts import Evidence


# -- Evidence: rows by op and call site, largest first


NO_OP = "(no op)"
Named = tuple[Ints, Sequence[str]]  # a code per row (NONE for none), and the names


def activity_table(evidence: Evidence, rows: Ints, time: Ints | None = None) -> Table:
    """Return a table of activities: op, path, name, total_ns, count and the row of the longest.

    ``time`` is summed for each of ``rows``; without it, their duration.
    """
    activities = evidence.attributed.activity_name
    names: Named = activities.codes[rows], list(activities.texts)
    spent = evidence.time[rows] if time is None else time
    return group_rows(
        {**op_and_path(evidence, evidence.attributed.node[rows]), "activity": names}, spent, rows
    )


def call_table(evidence: Evidence, rows: Ints, time: Ints | None = None) -> Table:
    """Return the same table of API calls."""
    names = evidence.capture.launches.name
    call_names: Named = names.codes[rows], list(names.texts)
    durations = (
        (call_ends(evidence.attributed) - evidence.capture.launches.start)[rows]
        if time is None
        else time
    )
    return group_rows(
        {**op_and_path(evidence, evidence.attributed.launch_node[rows]), "call": call_names},
        durations,
        rows,
    )


def node_table(evidence: Evidence, nodes: Ints, time: Ints) -> Table:
    """Return the same table of ranges, by nodes of the nesting; the example is a row of ranges."""
    return group_rows(
        op_and_path(evidence, nodes), time, evidence.attributed.attribution.nesting.range[nodes]
    )


def group_rows(by_names: Mapping[str, Named], time: Ints, rows: Ints) -> Table:
    """Return one row per combination of names: total_ns, count, and the row of the longest."""
    by_names = {name: _distinct(*named) for name, named in by_names.items()}
    group, first = number_groups(*(code for code, _ in by_names.values()))
    size = len(first)
    order = order_by(group, -time, rows)
    table = Table(
        {
            **{name: texts([*names, ""])[code[first]] for name, (code, names) in by_names.items()},
            "total_ns": sums(group, time, size),
            "count": counts(group, size),
            "example": rows[order[run_edges(group[order])[:-1]]],
        }
    )
    keys = ["total_ns", "count", *by_names]
    return table.sort_values(keys, ascending=[False, False] + [True] * len(by_names))


def _distinct(codes: Ints, names: Sequence[str]) -> Named:
    """Return codes of which each stands for another name."""
    number = {name: code for code, name in enumerate(dict.fromkeys(names))}
    if len(number) == len(names):
        return codes, names
    return np.array([*(number[name] for name in names), NONE])[codes], list(number)


def op_and_path(evidence: Evidence, node: Ints) -> dict[str, Named]:
    """Return op and path of each node, with names for no op."""
    attributed = evidence.attributed
    path, paths = evidence.paths
    op = np.where(node == NONE, len(attributed.ops), lookup(attributed.node_op, node))
    return {"op": (op, [*attributed.ops, NO_OP]), "path": (lookup(path, node), paths)}


# -- Rules and findings


UNKNOWN = -1  # ns, where no estimate is sound
RUN, KERNEL_TIME = "the run", "kernel time"
# Sources of rules.
TENSORBOARD = "PyTorch's TensorBoard plugin"
TORCH_TIDY = "TorchTidy"
NSYS = "Nsight Systems' expert rules"
NSIGHT_BRIDGE = "nsight-bridge"
NSIGHT_COMPUTE = "Nsight Compute"


@dataclass(frozen=True)
class Finding:
    """The result of a rule: the figures of its text, and rows as evidence, largest first.

    Suffixes of figures are units: ``_ns``, ``_share`` (of 1), ``_bytes``; others are counts or texts. ``change`` is what
    a remedy may be expected to change in the graph of the run, and ``limit`` what it could change at most; None where
    nobody knows. The run that would have been tells ``saving_ns`` and ``ceiling_ns``, -1 where they are not known; a
    rule about a capture without a timeline gives them itself. ``once`` tells that it is not paid in each iteration.
    ``is_named`` tells that one kernel, op or call has most of it; ``is_open`` that nobody knows how near to the limit a
    program comes, so that other limits stand before it. ``hidden_share`` is the part of GPU time of which the capture
    hides the kernels.
    """

    figures: Mapping[str, object]
    evidence: Table
    ceiling_ns: int = UNKNOWN
    saving_ns: int = UNKNOWN
    change: Change | None = None
    limit: Change | None = None
    once: bool = False
    is_named: bool = False
    is_open: bool = False
    hidden_share: float = 0.0


RuleCheck: TypeAlias = Check[Evidence, Finding | Iterable[Finding] | None]


@record
class Advice:
    """A rule that applies.

    ``share`` is its ceiling as a fraction of ``whole``, a name: the run, or kernel time in a
    capture without a timeline. It is -1 if unknown. ``remedy`` is what to do in this program, and
    ``same_time`` are rules that explain the same time less well. ``place`` is the line of the program of
    the largest row of evidence, if it is known.
    """

    rule: RuleCheck
    finding: Finding
    share: float
    whole: str = RUN
    remedy: str = ""
    same_time: tuple[str, ...] = ()
    place: Place | None = None

    @property
    def expected_ns(self) -> int:
        """What a remedy is expected to save in ns: the estimate, 0 where there is none."""
        return max(self.finding.saving_ns, 0)

    @property
    def saving_share(self) -> float:
        """The estimate as a fraction of ``whole``; 0 where there is none."""
        known = self.finding.ceiling_ns > 0 and self.share > 0
        return self.share * self.expected_ns / self.finding.ceiling_ns if known else 0.0

    @property
    def is_main(self) -> bool:
        """Whether one kernel, op or call has most of the time that the finding is about."""
        return self.finding.is_named


@record
class NotJudged:
    """A rule for which data is missing: what is missing, and what records it."""

    rule: RuleCheck
    missing: str
    record: str
