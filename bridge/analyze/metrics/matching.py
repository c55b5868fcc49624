"""What Nsight Compute measured, for the kernels of a timeline: two runs of a program, matched kernel by kernel.

Never by the name alone where more is known: the same kernel under another op has other work to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.analyze.metrics.values import SURE
from bridge.join.arrays import NONE, Ints, number, runs, stable
from bridge.join.attributed import Attributed
from bridge.join.nesting import paths
from bridge.join.steps import KINDS
from importers import frames
from importers.ncu.metrics import Metrics
from importers.ncu.metrics import concat as one_after_another
from importers.report import Report

# -- What several reports of Nsight Compute say of the same kernels of a timeline, as one


@dataclass(frozen=True)
class _Sources:
    """Each combination of measured kernels that activities have: the kernel (or NONE) and how sure, by report."""

    kernel: tuple[Ints, ...]
    sure: tuple[Ints, ...]

    @property
    def least(self) -> Ints:
        """How sure the least sure one is."""
        found: Ints = np.max(self.sure, axis=0)
        return found


def united(parts: Sequence[Metrics]) -> Metrics:
    """Put together what was matched to the same activities, in the order named; ``sure`` is of the least sure match."""
    if len(parts) == 1:
        return parts[0]
    together = one_after_another(parts, [len(part.of) for part in parts])
    of = np.split(together.of, len(parts))
    keys = [column for one, part in zip(of, parts, strict=True) for column in (one, part.sure)]
    code, first = number(*keys)
    measured = np.max([one[first] for one in of], axis=0) != NONE
    rows = first[measured]
    sources = _Sources(tuple(one[rows] for one in of), tuple(part.sure[rows] for part in parts))
    new = np.full(len(first), NONE)
    new[measured] = np.arange(len(rows))
    return Metrics(
        _gathered(together.table, sources, "metric"),
        _gathered(together.rules, sources, "rule"),
        new[code],
        np.append(sources.least, NONE)[new[code]],
        tuple(name for part in parts for name in part.source),
    )


def _gathered(table: pd.DataFrame, sources: _Sources, what: str) -> pd.DataFrame:
    """Return the rows of each combination, of the surest report that has any of that metric or rule."""
    parts = [_rows(table, kernel) for kernel in sources.kernel]
    many = len(parts)
    combination = np.concatenate([of for of, _ in parts])
    row = np.concatenate([rows for _, rows in parts])
    rank = np.concatenate(
        [
            sure[of] * many + (many - 1 - nth)
            for nth, ((of, _), sure) in enumerate(zip(parts, sources.sure, strict=True))
        ]
    )
    code, distinct = number(combination, frames.codes(table[what])[row])
    best = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(best, code, rank)
    kept = np.flatnonzero(rank == best[code])
    kept = kept[np.lexsort((row[kept], combination[kept]))]
    found = table.iloc[row[kept]].assign(kernel=combination[kept])
    return found.reset_index(drop=True)


def _rows(table: pd.DataFrame, kernel: Ints) -> tuple[Ints, Ints]:
    """Return pairs of a combination and a row of its kernel; rows of a kernel stand together, in order."""
    of_row = frames.ints(table, "kernel")
    known = np.flatnonzero(kernel != NONE)
    first, end = (np.searchsorted(of_row, kernel[known], side) for side in ("left", "right"))
    count = end - first
    before = np.cumsum(count) - count
    place = np.repeat(first - before, count) + np.arange(count.sum())
    return np.repeat(known, count), place


# -- What Nsight Compute measured, for the kernels of a timeline: two runs of a program, matched kernel by kernel


STEP = "step"  # what all steps are called where their number does not matter
EXTENT = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
KEYS: Sequence[Sequence[str]] = (  # what is alike, surest first: as many as `SURE`
    ("process", "device", "path", "kernel", *EXTENT, "call"),
    ("place", "kernel", *EXTENT),
    ("kernel", *EXTENT),
    ("kernel",),
)


@dataclass(frozen=True)
class Matched:
    """A timeline's report with metrics; ``kernels`` of it and ``measured`` ones, and how many found another.

    ``by`` counts the timeline's kernels by how sure each match is, in the order of `SURE`; ``unused``
    are measured kernels that none of the timeline is by call, or if calls are not known, by path and geometry.
    """

    report: Report
    kernels: int
    measured: int
    by: tuple[int, ...]
    unused: int

    @property
    def line(self) -> str:
        """What became of the kernels, in words."""
        sure = ", ".join(f"{n} by {how}" for n, how in zip(self.by, SURE, strict=True) if n)
        none = self.kernels - sum(self.by)
        found = f"metrics of {self.kernels - none} of {self.kernels} kernels"
        said = [f"{found}: {sure}" if sure else found]
        said += [f"{none} without"] if none else []
        said += (
            [f"{self.unused} of {self.measured} measured ones not in the report"]
            if self.unused
            else []
        )
        return "; ".join(said)


def matched(timeline: Attributed, measured: Attributed) -> Matched:
    """Match the kernels of a timeline to measured ones.

    By the path of ops, the kernel's name, grid, block, and which of these calls it is on its device in its
    process, in order of time; where no such call was measured, by the last one with the same path, in whatever
    step; then by name and geometry; then by name. The n-th process is the n-th measured one, and its devices
    likewise, if both runs had as many; else no call is known to be another.
    """
    (rows, their_rows), columns = _together(timeline, measured)
    of, sure = np.full(len(rows), NONE), np.full(len(rows), NONE)
    surest = 0 if _as_many(columns, len(rows)) else 1
    for code, keys in enumerate(KEYS[surest:], surest):
        found = np.where(of == NONE, _last_alike([columns[key] for key in keys], len(rows)), NONE)
        sure[found != NONE] = code
        of = np.where(found == NONE, of, found)
    there = _there([columns[key] for key in KEYS[surest]], len(rows))
    their, size = measured.report.metrics, len(timeline.report.activities)
    number_of = np.append(their.of[their_rows], NONE)
    metrics = replace(
        their,
        of=_spread(number_of[of], rows, size),
        sure=_spread(sure, rows, size),
        source=measured.report.source,
    )
    return Matched(
        replace(timeline.report, metrics=metrics),
        len(rows),
        len(their_rows),
        tuple(int((sure == code).sum()) for code in range(len(SURE))),
        len(their_rows) - there,
    )


def _spread(values: Ints, rows: Ints, size: int) -> Ints:
    found = np.full(size, NONE)
    found[rows] = values
    return found


def _last_alike(keys: Sequence[Ints], ours: int) -> Ints:
    """Return for each of our rows, which come first, the last of theirs that has the same keys, or NONE."""
    code, distinct = number(*keys)
    last = np.full(len(distinct), NONE)
    np.maximum.at(last, code[ours:], np.arange(len(code) - ours))
    return last[code[:ours]]


def _there(keys: Sequence[Ints], ours: int) -> int:
    """Count those of their rows that have the same keys as one of ours."""
    code, _ = number(*keys)
    return int(np.isin(code[ours:], code[:ours]).sum())


def _as_many(columns: dict[str, Ints], ours: int) -> bool:
    """Tell whether both had kernels in as many processes, and on as many devices of each."""
    code, _ = number(columns["process"], columns["device"])
    return set(code[:ours].tolist()) == set(code[ours:].tolist())


def _together(ours: Attributed, theirs: Attributed) -> tuple[tuple[Ints, Ints], dict[str, Ints]]:
    """Return the rows of the kernels of both, in order of time, and what they are matched by, ours first."""
    both = (ours, theirs)
    rows = _kernels(ours), _kernels(theirs)
    columns = {
        name: np.concatenate(
            [frames.ints(j.report.activities, name)[r] for j, r in zip(both, rows, strict=True)]
        )
        for name in (*EXTENT, "process", "device", "report")
    }
    whose = np.repeat([0, 1], [len(r) for r in rows])
    columns["process"] = _ranks([whose], [columns["report"], columns["process"]])
    columns["device"] = _ranks([whose, columns["process"]], [columns["device"]])
    columns["kernel"] = np.concatenate(_names(ours, theirs, rows))
    columns["path"] = np.concatenate(_paths(both, rows, [j.node_path for j in both]))
    columns["place"] = np.concatenate(_paths(both, rows, [_places(j) for j in both]))
    same = [columns[name] for name in ("process", "device", "path", "kernel", *EXTENT)]
    columns["call"] = _nth(number(whose, *same)[0])
    return rows, columns


def _kernels(joined: Attributed) -> Ints:
    """Return the rows of kernels in order of time."""
    activities = joined.report.activities
    rows = np.flatnonzero(frames.is_kind(activities, frames.KERNEL))
    return rows[stable(frames.ints(activities, "start")[rows])]


def _ranks(within: Sequence[Ints], keys: Sequence[Ints]) -> Ints:
    """Return of each row which one its keys are of those within the same, in the order they come first."""
    code, first = number(*within, *keys)
    outer = number(*within)[0][first]
    order = np.lexsort((first, outer))
    rank = np.empty(len(first), np.int64)
    rank[order] = _nth(outer[order])
    return rank[code]


def _nth(code: Ints) -> Ints:
    """Return how many rows before each have the same code."""
    order = stable(code)
    first = runs(code[order])
    nth = np.empty(len(code), np.int64)
    nth[order] = np.arange(len(code)) - np.repeat(first[:-1], np.diff(first))
    return nth


def _places(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return the path of each node with all steps called alike, as a code, and the distinct paths."""
    names = [STEP if any(k.fullmatch(op) for k in KINDS) else op for op in joined.ops]
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    of = np.array([*(known[name] for name in names), NONE], np.int64)
    return paths(joined.attribution.nesting, of[joined.node_op], tuple(known))


def _paths(
    both: Sequence[Attributed], rows: Sequence[Ints], coded: Sequence[tuple[Ints, list[str]]]
) -> list[Ints]:
    """Return the path of each kernel as a code that is the same for both; NONE for no op."""
    known: dict[str, int] = {}
    found = []
    for joined, of, (code, names) in zip(both, rows, coded, strict=True):
        ids = np.array([*(known.setdefault(path, len(known)) for path in names), NONE], np.int64)
        node = joined.attribution.node[of]
        found.append(ids[np.where(node == NONE, NONE, np.append(code, NONE)[node])])
    return found


def _names(ours: Attributed, theirs: Attributed, rows: tuple[Ints, Ints]) -> list[Ints]:
    """Return the name of each kernel as a code that is the same for both.

    Demangled names count, however they are spaced; of kernels that were measured under the short one
    alone (``--print-kernel-base function``), that.
    """
    (code, names), (their_code, their_names) = (
        _written(j, of) for j, of in zip((ours, theirs), rows, strict=True)
    )
    known = {name: number for number, (name, _) in reversed(list(enumerate(their_names)))}
    ids = [known.get(full, known.get(short, NONE)) for full, short in names]
    return [
        np.array(ids, np.int64)[code],
        np.array([known[full] for full, _ in their_names], np.int64)[their_code],
    ]


def _written(joined: Attributed, rows: Ints) -> tuple[Ints, list[tuple[str, str]]]:
    """Return a code per row, and the demangled name without blanks and the short one of each code."""
    activities = joined.report.activities
    full, short = (frames.codes(activities[c])[rows] for c in ("full_name", "name"))
    code, first = number(full, short)
    fulls, shorts = ([*map(str, activities[c].cat.categories), ""] for c in ("full_name", "name"))
    pairs = zip(full[first].tolist(), short[first].tolist(), strict=True)
    return code, [("".join((fulls[f] or shorts[s]).split()), shorts[s]) for f, s in pairs]
