"""What a rule is, and what it finds.

The invariant: a rule judges only what the report can tell; what it needs is said beside it, never guessed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bridge.analyze.advice.facts import Seen
from bridge.analyze.causes.api_calls import ends
from bridge.analyze.groups import counts, sums, texts
from bridge.join.arrays import NONE, Ints, by, number, runs
from importers import frames

if TYPE_CHECKING:
    from bridge.analyze.advice.facts import Seen


# -- The rows that show what a rule has found: by op and call site, the largest first


NO_OP = "(no op)"
Named = tuple[Ints, Sequence[str]]  # a code per row (NONE for none), and the names


def of_activities(
    seen: Seen, rows: Ints, time: Ints | None = None, column: str = "name"
) -> pd.DataFrame:
    """Return evidence of activities: op, path, what ran, total_ns, count, the row of the longest as example.

    ``time`` is what is summed for each of ``rows``; without it, how long it took.
    """
    activities = seen.report.activities[column]
    what: Named = frames.codes(activities)[rows], list(activities.cat.categories)
    spent = seen.time[rows] if time is None else time
    return grouped({**_places(seen, seen.joined.node[rows]), "activity": what}, spent, rows)


def of_calls(seen: Seen, rows: Ints, time: Ints | None = None) -> pd.DataFrame:
    """Return the same of API calls."""
    names = seen.report.launches["name"]
    what: Named = frames.codes(names)[rows], list(names.cat.categories)
    spent = (
        (ends(seen.joined) - frames.ints(seen.report.launches, "start"))[rows]
        if time is None
        else time
    )
    return grouped({**_places(seen, seen.joined.launch_node[rows]), "call": what}, spent, rows)


def of_nodes(seen: Seen, nodes: Ints, time: Ints) -> pd.DataFrame:
    """Return the same of ranges, by nodes of the nesting: the example is the row of a range."""
    return grouped(_places(seen, nodes), time, seen.joined.attribution.nesting.range[nodes])


def grouped(by_names: Mapping[str, Named], time: Ints, rows: Ints) -> pd.DataFrame:
    """Return a row per combination of names: total_ns, count, and of the longest the row."""
    group, first = number(*(code for code, _ in by_names.values()))
    many = len(first)
    order = by(group, -time, rows)
    table = pd.DataFrame(
        {
            **{name: texts([*names, ""])[code[first]] for name, (code, names) in by_names.items()},
            "total_ns": sums(group, time, many),
            "count": counts(group, many),
            "example": rows[order[runs(group[order])[:-1]]],
        }
    )
    keys = ["total_ns", "count", *by_names]
    return table.sort_values(
        keys, ascending=[False, False] + [True] * len(by_names), ignore_index=True, kind="stable"
    )


def _places(seen: Seen, node: Ints) -> dict[str, Named]:
    """Return op and path of each node; of none both say so."""
    joined = seen.joined
    path, paths = seen.places
    op = np.where(node == NONE, len(joined.ops), np.append(joined.node_op, NONE)[node])
    return {"op": (op, [*joined.ops, NO_OP]), "path": (np.append(path, NONE)[node], paths)}


# -- What a rule is, and what it finds


UNKNOWN = -1  # ns, where nothing sound can be said
NOT_ESTIMATED = "none"
THE_RUN, KERNEL_TIME = "the run", "kernel time"
# Where rules come from.
TENSORBOARD = "PyTorch's TensorBoard plugin"
TIDY = "TorchTidy"
NSYS = "Nsight Systems' expert rules"
HERE = "nsight-bridge"
NSIGHT_COMPUTE = "Nsight Compute"


@dataclass(frozen=True)
class Finding:
    """What a rule has found: the figures of its sentence, and the rows that show it, the largest first.

    The ends of their names say what figures are: ``_ns``, ``_share`` (of 1), ``_bytes``; else a count or a text.

    Removing the cause saves about ``saving_ns`` of the run and at most ``ceiling_ns``; of several GPUs or
    processes, which wait for one another, that of the one with most. -1 where nothing sound can be said.
    """

    figures: Mapping[str, object]
    evidence: pd.DataFrame
    ceiling_ns: int = UNKNOWN
    saving_ns: int = UNKNOWN


@dataclass(frozen=True)
class Rule:
    """A rule: what it is about, when it fires, the sentence that takes its figures, what to do, how its saving is estimated, where it comes from, and what it reads.

    ``needs`` are names of `needs.NEEDS`; ``find`` returns None, or no finding, where all is well.
    """

    name: str
    title: str
    when: str
    said: str
    remedy: str
    estimate: str
    source: str
    needs: tuple[str, ...]
    find: Callable[[Seen], Finding | Iterable[Finding] | None]


@dataclass(frozen=True)
class Advice:
    """A rule that applies; ``share`` is the fraction of the run that its ceiling is, -1 where that is not known.

    ``of`` is what it is a fraction of, in words: of a report without a timeline not the run.
    """

    rule: Rule
    finding: Finding
    share: float
    of: str = THE_RUN


@dataclass(frozen=True)
class NotJudged:
    """A rule for which the report holds too little: what is missing, and what records it."""

    rule: Rule
    missing: str
    record: str
