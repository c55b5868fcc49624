"""What a worker sends of one report: its accounting, and tables whose columns add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.analyze.calltree import own_time
from bridge.analyze.ranks.members import Home
from bridge.analyze.tables.activity_metrics import call_time
from bridge.analyze.tables.statistics import TIMES
from bridge.analyze.tables.table import Options, making
from bridge.analyze.totals import Totals
from bridge.join.arrays import NONE
from bridge.join.attributed import BOTH
from bridge.join.choices import Choices
from bridge.join.domains import ALL, DEFAULT, UnknownDomainError, accepted
from bridge.report import Joined
from bridge.scale.merging import Merged, Times, Wholes, packed
from bridge.scale.requests import Asked
from importers import frames
from importers.report import Facts, Report


@dataclass(frozen=True)
class Aggregates:
    """One report: ``place`` among all, its ``facts``, what it amounts to, and its tables by name as `packed` gives them.

    ``wholes`` are the times in ns that shares are of; ``ops`` the ops that own an activity; ``known_by`` is what its
    content is known by, '' unless that was asked for; ``undeclared`` are domains that were asked for and are not in it.
    ``homes`` say who is which rank.
    """

    place: int
    source: str
    facts: Facts
    totals: Totals
    wholes: Wholes
    ranges: int
    ops: frozenset[str]
    warnings: tuple[str, ...]
    tables: Mapping[str, bytes]
    known_by: str = ""
    undeclared: frozenset[str] = frozenset()
    homes: tuple[Home, ...] = ()

    @property
    def bytes(self) -> int:
        """How much its tables take."""
        return sum(map(len, self.tables.values()))


def aggregates(joined: Joined, place: int, tables: Sequence[Asked]) -> Aggregates:
    """Aggregate one report."""
    report = joined.report
    return Aggregates(
        place,
        report.source[0],
        replace(report.facts[0], recordings=()),
        joined.totals,
        wholes(joined),
        len(report.ranges),
        ops_of(joined),
        (*report.warnings, *joined.warnings),
        {one.name: packed(table(joined, one)) for one in tables},
        homes=tuple(joined.ranks.homes),
    )


def table(joined: Joined, asked: Asked) -> Merged:
    """Return one table of one report, its rows in any order."""
    found = making(joined.attributed, asked.by, options(asked))(asked.columns)
    times = [c for c in asked.columns if c.endswith(TIMES)]
    labels = [c for c in found.columns if c not in asked.columns]
    return Merged(
        {c: label(found[c]) for c in labels},
        {c: found[c].to_numpy(np.int64) for c in asked.columns if c not in times},
        {c: Times.of(found[c].tolist()) for c in times},
    )


def options(asked: Asked) -> Options:
    """Return what changes the rows of a table."""
    return Options(
        inclusive=asked.inclusive,
        kernel_names=asked.kernel_names,
        memory_kinds=asked.memory_kinds,
        direction=asked.direction,
    )


def label(column: pd.Series) -> np.ndarray:
    """Return a column that names rows as integers or objects."""
    values = column.to_numpy()
    return values.astype(np.int64) if values.dtype.kind in "iu" else values.astype(object)


def wholes(joined: Joined) -> dict[str, int]:
    """Return the times that shares are of: of all activities, of all kernels, of API calls, and of ranges on the host."""
    found = joined.attributed.only(BOTH)
    kernels = frames.is_kind(joined.report.activities, frames.KERNEL)
    nesting = found.attribution.nesting
    return {
        "gpu": found.whole_ns,
        "kernels": int(found.duration[kernels & found.accounted].sum()),
        "calls": int(call_time(found)[found.accounted_launches].sum()),
        "cpu": int(own_time(nesting).sum()),
    }


def ops_of(joined: Joined) -> frozenset[str]:
    """Return the ops that own an activity."""
    op = joined.attributed.activity_op
    return frozenset(joined.attributed.ops[code] for code in np.unique(op[op != NONE]).tolist())


def undeclared_in(report: Report, choices: Choices) -> frozenset[str]:
    """Return the domains that are asked for and not in this report: another may have them."""
    names = {*choices.only, *choices.without} - {ALL}
    return frozenset(name for name in names if not _there(report, name))


def _there(report: Report, name: str) -> bool:
    try:
        accepted(report.ranges, (name,), ())
    except UnknownDomainError:
        return False
    return True


def without(choices: Choices, undeclared: frozenset[str]) -> Choices:
    """Return the choices as far as they concern a report without some domains."""
    only = tuple(name for name in choices.only if name not in undeclared)
    without = tuple(name for name in choices.without if name not in undeclared)
    if choices.only and not only:  # none of its ranges is an op
        return replace(choices, domains=(DEFAULT,), without=(DEFAULT,))
    return replace(choices, domains=only, without=without)
