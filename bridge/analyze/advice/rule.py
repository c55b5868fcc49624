"""The parts of a rule and its findings.

A rule judges only what the capture can tell; ``needs`` names the data that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bridge.analyze.advice.facts import Evidence
from bridge.analyze.causes.host_timeline import call_ends
from bridge.analyze.groups import counts, sums, texts
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from importers import frames

if TYPE_CHECKING:
    from bridge.analyze.advice.facts import Evidence


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


def _op_and_path(evidence: Evidence, node: Ints) -> dict[str, Named]:
    """Return op and path of each node, with names for no op."""
    attributed = evidence.attributed
    path, paths = evidence.paths
    op = np.where(node == NONE, len(attributed.ops), np.append(attributed.node_op, NONE)[node])
    return {"op": (op, [*attributed.ops, NO_OP]), "path": (np.append(path, NONE)[node], paths)}


# -- Rules and findings


UNKNOWN = -1  # ns, where no estimate is sound
NOT_ESTIMATED = "none"
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

    Suffixes of figures are units: ``_ns``, ``_share`` (of 1), ``_bytes``; others are counts or
    texts. A change saves about ``saving_ns`` of the run and at most ``ceiling_ns``, for the GPU or
    process with the most of it, as they wait for one another. They are -1 where no estimate is
    sound.
    """

    figures: Mapping[str, object]
    evidence: pd.DataFrame
    ceiling_ns: int = UNKNOWN
    saving_ns: int = UNKNOWN


@dataclass(frozen=True)
class Rule:
    """A rule of advice.

    ``when`` says when it applies, ``text`` is the sentence with placeholders for figures,
    ``remedy`` what to do, ``estimate`` how the saving is estimated, and ``source`` where the rule
    comes from. ``needs`` are names in `needs.NEEDS`. ``find`` returns None or no finding if all is
    well.
    """

    name: str
    title: str
    when: str
    text: str
    remedy: str
    estimate: str
    source: str
    needs: tuple[str, ...]
    find: Callable[[Evidence], Finding | Iterable[Finding] | None]


@dataclass(frozen=True)
class Advice:
    """A rule that applies.

    ``share`` is its ceiling as a fraction of ``whole``, a name: the run, or kernel time in a
    capture without a timeline. It is -1 if unknown.
    """

    rule: Rule
    finding: Finding
    share: float
    whole: str = RUN


@dataclass(frozen=True)
class NotJudged:
    """A rule for which data is missing: what is missing, and what records it."""

    rule: Rule
    missing: str
    record: str
