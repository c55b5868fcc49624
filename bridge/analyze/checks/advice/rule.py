"""The findings of rules of advice, and rows as their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.places import Place
from bridge.analyze.checks.check import NAMED, UNNAMED, Check
from bridge.analyze.core.groups import counts, sums, texts
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges

if TYPE_CHECKING:
    from bridge.analyze.checks.advice.facts import Evidence


# -- Evidence: rows by op and call site, largest first


NO_OP = "(no op)"
Named = tuple[Ints, Sequence[str]]  # a code per row (NONE for none), and the names


def activity_table(evidence: Evidence, rows: Ints, time: Ints | None = None) -> pd.DataFrame:
    """Return a table of activities: op, path, name, total_ns, count and the row of the longest.

    ``time`` is summed for each of ``rows``; without it, their duration.
    """
    activities = evidence.attributed.activity_name
    names: Named = frames.codes(activities)[rows], list(activities.cat.categories)
    spent = evidence.time[rows] if time is None else time
    return group_rows(
        {**_op_and_path(evidence, evidence.attributed.node[rows]), "activity": names}, spent, rows
    )


def call_table(evidence: Evidence, rows: Ints, time: Ints | None = None) -> pd.DataFrame:
    """Return the same table of API calls."""
    names = evidence.capture.launches["name"]
    call_names: Named = frames.codes(names)[rows], list(names.cat.categories)
    durations = (
        (call_ends(evidence.attributed) - frames.ints(evidence.capture.launches, "start"))[rows]
        if time is None
        else time
    )
    return group_rows(
        {**_op_and_path(evidence, evidence.attributed.launch_node[rows]), "call": call_names},
        durations,
        rows,
    )


def node_table(evidence: Evidence, nodes: Ints, time: Ints) -> pd.DataFrame:
    """Return the same table of ranges, by nodes of the nesting; the example is a row of ranges."""
    return group_rows(
        _op_and_path(evidence, nodes), time, evidence.attributed.attribution.nesting.range[nodes]
    )


def group_rows(by_names: Mapping[str, Named], time: Ints, rows: Ints) -> pd.DataFrame:
    """Return one row per combination of names: total_ns, count, and the row of the longest."""
    by_names = {name: _distinct(*named) for name, named in by_names.items()}
    group, first = number_groups(*(code for code, _ in by_names.values()))
    size = len(first)
    order = order_by(group, -time, rows)
    table = pd.DataFrame(
        {
            **{name: texts([*names, ""])[code[first]] for name, (code, names) in by_names.items()},
            "total_ns": sums(group, time, size),
            "count": counts(group, size),
            "example": rows[order[run_edges(group[order])[:-1]]],
        }
    )
    keys = ["total_ns", "count", *by_names]
    return table.sort_values(
        keys, ascending=[False, False] + [True] * len(by_names), ignore_index=True, kind="stable"
    )


def _distinct(codes: Ints, names: Sequence[str]) -> Named:
    """Return codes of which each stands for another name."""
    number = {name: code for code, name in enumerate(dict.fromkeys(names))}
    if len(number) == len(names):
        return codes, names
    return np.array([*(number[name] for name in names), NONE])[codes], list(number)


def _op_and_path(evidence: Evidence, node: Ints) -> dict[str, Named]:
    """Return op and path of each node, with names for no op."""
    attributed = evidence.attributed
    path, paths = evidence.paths
    op = np.where(node == NONE, len(attributed.ops), np.append(attributed.node_op, NONE)[node])
    return {"op": (op, [*attributed.ops, NO_OP]), "path": (np.append(path, NONE)[node], paths)}


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
class LostTime:
    """The time of GPUs that a finding is about: parts of gaps and of activities, in ns.

    ``gaps`` are rows of the gaps of `Evidence.idle`, each once, with ``idle_ns`` of each;
    ``activities`` are rows of activities, with ``work_ns`` of each.
    """

    gaps: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    idle_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    activities: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    work_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def parts(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Rows and times of gaps, and of activities."""
        return (self.gaps, self.idle_ns), (self.activities, self.work_ns)


def idle_pieces(evidence: Evidence, pieces: Flags) -> LostTime:
    """Return the time of some pieces of gaps, which are rows of `Evidence.idle`."""
    idle = evidence.idle
    total = sums(idle.gap[pieces], idle.length[pieces], len(idle.gaps))
    gaps = np.flatnonzero(total)
    return LostTime(gaps, total[gaps])


def idle_before(evidence: Evidence, rows: Ints, time: Ints, *, with_work: bool = False) -> LostTime:
    """Return the time that GPUs were idle right before some activities, and on request their own time."""
    gaps = evidence.idle.gaps
    ended = np.full(len(evidence.time), NONE)
    ended[gaps.ended_by] = np.arange(len(gaps))
    gap = ended[rows]
    is_known = gap != NONE
    work = (rows, evidence.time[rows]) if with_work else ()
    return LostTime(gap[is_known], time[is_known], *work)


@dataclass(frozen=True)
class Finding:
    """The result of a rule: the figures of its text, and rows as evidence, largest first.

    Suffixes of figures are units: ``_ns``, ``_share`` (of 1), ``_bytes``; others are counts or
    texts. A change saves about ``saving_ns`` of the run and at most ``ceiling_ns``, for the GPU or
    process with the most of it, as they wait for one another. They are -1 where no estimate is
    sound. ``lost`` is the time that the finding explains, None if it explains none; ``is_named``
    says that one range, call or kernel has most of it. ``hidden_share`` is the part of GPU time of
    which the capture hides the kernels.
    """

    figures: Mapping[str, object]
    evidence: pd.DataFrame
    ceiling_ns: int = UNKNOWN
    saving_ns: int = UNKNOWN
    lost: LostTime | None = None
    is_named: bool = False
    hidden_share: float = 0.0


RuleCheck: TypeAlias = Check[Evidence, Finding | Iterable[Finding] | None]


@dataclass(frozen=True)
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
    def expected_ns(self) -> float:
        """What a remedy may be expected to save: the estimate, else a part of the ceiling."""
        if self.finding.saving_ns >= 0:
            return self.finding.saving_ns
        is_cause = self.finding.is_named and self.rule.certainty == UNNAMED
        return max(self.finding.ceiling_ns, 0) * (NAMED if is_cause else self.rule.certainty)


@dataclass(frozen=True)
class NotJudged:
    """A rule for which data is missing: what is missing, and what records it."""

    rule: RuleCheck
    missing: str
    record: str
