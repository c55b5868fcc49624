"""Match kernels measured by Nsight Compute to those of a timeline: two runs of a program.

The name alone is used only where nothing more is known, as a kernel under another op does other
work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from bridge.analyze.cost.metrics.values import MATCH_LEVELS
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.capture import Capture
from bridge.importers.ncu.metrics import KernelMetrics, Metrics, RuleMessages
from bridge.importers.ncu.metrics import concat as one_after_another
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, run_edges, stable_order
from bridge.join.attributed import AttributedCapture
from bridge.join.paths import paths
from bridge.join.steps import KINDS

# -- Merging metrics of several files


@record
class _Sources:
    """Combinations of measured kernels: the kernel (or NONE) and the match level, per file."""

    kernel: tuple[Ints, ...]
    sure: tuple[Ints, ...]

    @property
    def least_certain(self) -> Ints:
        """The least certain match level of each combination."""
        result: Ints = np.max(self.sure, axis=0)
        return result


def merge_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Merge metrics that were matched to the same activities, in the given order.

    The match level is that of the least certain match.
    """
    if len(parts) == 1:
        return parts[0]
    metrics = one_after_another(parts, [len(part.of) for part in parts])
    kernels_by_file = np.split(metrics.of, len(parts))
    keys = [
        column
        for kernels, part in zip(kernels_by_file, parts, strict=True)
        for column in (kernels, part.sure)
    ]
    code, first = number_groups(*keys)
    is_measured = np.max([kernels[first] for kernels in kernels_by_file], axis=0) != NONE
    rows = first[is_measured]
    sources = _Sources(
        tuple(kernels[rows] for kernels in kernels_by_file),
        tuple(part.sure[rows] for part in parts),
    )
    new_number = scatter(np.arange(len(rows)), is_measured, len(first))
    return Metrics(
        table=_select_surest(metrics.table, sources, "metric"),
        rules=_select_surest(metrics.rules, sources, "rule"),
        of=new_number[code],
        sure=lookup(sources.least_certain, new_number[code]),
        source=tuple(name for part in parts for name in part.source),
    )


Measured = TypeVar("Measured", KernelMetrics, RuleMessages)


def _select_surest(table: Measured, sources: _Sources, column: str) -> Measured:
    """Return the rows of each combination, per metric or rule from the most certain file."""
    parts = [_rows(table, kernel) for kernel in sources.kernel]
    size = len(parts)
    combination = np.concatenate([of for of, _ in parts])
    row = np.concatenate([rows for _, rows in parts])
    rank = np.concatenate(
        [
            sure[of] * size + (size - 1 - nth)
            for nth, ((of, _), sure) in enumerate(zip(parts, sources.sure, strict=True))
        ]
    )
    code, distinct = number_groups(combination, table[column].codes[row])
    best = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(best, code, rank)
    selected = np.flatnonzero(rank == best[code])
    selected = selected[np.lexsort((row[selected], combination[selected]))]
    return table.take(row[selected]).replace(kernel=combination[selected])


def _rows(table: KernelMetrics | RuleMessages, kernel: Ints) -> tuple[Ints, Ints]:
    """Return pairs of a combination and a row of its kernel, in order of rows."""
    kernel_of_row = table.kernel
    measured = np.flatnonzero(kernel != NONE)
    first, end = (
        np.searchsorted(kernel_of_row, kernel[measured], side) for side in ("left", "right")
    )
    count = end - first
    offset = np.cumsum(count) - count
    row = np.repeat(first - offset, count) + np.arange(count.sum())
    return np.repeat(measured, count), row


# -- Matching


ANY_STEP = "step"  # name of all steps where their number is ignored
GEOMETRY = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
MATCH_KEYS: Sequence[Sequence[str]] = (  # keys by match level, most certain first
    ("process", "device", "path", "kernel", *GEOMETRY, "call"),
    ("place", "kernel", *GEOMETRY),
    ("kernel", *GEOMETRY),
    ("kernel",),
)


@record
class MatchedMetrics:
    """A timeline with metrics, and statistics of the match.

    ``kernels`` and ``measured`` are numbers of kernels. ``by`` counts the kernels of the timeline
    by match level, in the order of `MATCH_LEVELS`. ``unused`` is the number of measured kernels
    that match none of the timeline by call, or if calls are unknown, by path and geometry.
    """

    capture: Capture
    kernels: int
    measured: int
    by: tuple[int, ...]
    unused: int

    @property
    def line(self) -> str:
        """The statistics as text."""
        sure = ", ".join(f"{n} by {how}" for n, how in zip(self.by, MATCH_LEVELS, strict=True) if n)
        none = self.kernels - sum(self.by)
        text = f"metrics of {self.kernels - none} of {self.kernels} kernels"
        lines = [f"{text}: {sure}" if sure else text]
        lines += [f"{none} without"] if none else []
        lines += (
            [f"{self.unused} of {self.measured} measured ones not in the report"]
            if self.unused
            else []
        )
        return "; ".join(lines)


def match_metrics(timeline: AttributedCapture, measured: AttributedCapture) -> MatchedMetrics:
    """Match the kernels of a timeline to measured ones.

    Kernels match by path of ops, name, grid, block and call: their number among such calls on their
    device and in their process, in order of time. If no such call was measured, the last kernel
    with the same path, in any step, matches; then by name and geometry; then by name. Processes and
    their devices match in order if both runs have the same number of them; else calls are unknown.
    """
    (rows, measured_rows), columns = _common_columns(timeline, measured)
    match, sure = np.full(len(rows), NONE), np.full(len(rows), NONE)
    first_level = 0 if _same_devices(columns, len(rows)) else 1
    for code, keys in enumerate(MATCH_KEYS[first_level:], first_level):
        values = np.where(
            match == NONE, _last_match([columns[key] for key in keys], len(rows)), NONE
        )
        sure[values != NONE] = code
        match = np.where(values == NONE, match, values)
    matched_count = _count_matched([columns[key] for key in MATCH_KEYS[first_level]], len(rows))
    metrics_measured, size = measured.capture.metrics, len(timeline.capture.activities)
    kernel_number = np.append(metrics_measured.of[measured_rows], NONE)
    metrics = replace(
        metrics_measured,
        of=scatter(kernel_number[match], rows, size),
        sure=scatter(sure, rows, size),
        source=measured.capture.source,
    )
    return MatchedMetrics(
        capture=replace(timeline.capture, metrics=metrics),
        kernels=len(rows),
        measured=len(measured_rows),
        by=tuple(int((sure == code).sum()) for code in range(len(MATCH_LEVELS))),
        unused=len(measured_rows) - matched_count,
    )


def _last_match(keys: Sequence[Ints], timeline_size: int) -> Ints:
    """Return for each row of the timeline, which come first, the last measured one with equal keys.

    It is NONE if there is none.
    """
    code, distinct = number_groups(*keys)
    last = np.full(len(distinct), NONE)
    np.maximum.at(last, code[timeline_size:], np.arange(len(code) - timeline_size))
    return last[code[:timeline_size]]


def _count_matched(keys: Sequence[Ints], timeline_size: int) -> int:
    """Return the number of measured rows with the keys of a row of the timeline."""
    code, _ = number_groups(*keys)
    return int(np.isin(code[timeline_size:], code[:timeline_size]).sum())


def _same_devices(columns: dict[str, Ints], timeline_size: int) -> bool:
    """Return whether both have equally many processes with kernels, and devices in each."""
    code, _ = number_groups(columns["process"], columns["device"])
    return set(code[:timeline_size].tolist()) == set(code[timeline_size:].tolist())


def _common_columns(
    timeline: AttributedCapture, measured: AttributedCapture
) -> tuple[tuple[Ints, Ints], dict[str, Ints]]:
    """Return the rows of the kernels of both, sorted by time, and the columns for matching."""
    captures = (timeline, measured)
    rows = _kernels(timeline), _kernels(measured)
    columns = {
        name: np.concatenate(
            [j.capture.activities[name][r] for j, r in zip(captures, rows, strict=True)]
        )
        for name in (*GEOMETRY, "process", "device", "report")
    }
    source = np.repeat([0, 1], [len(r) for r in rows])
    columns["process"] = _order_within([source], [columns["report"], columns["process"]])
    columns["device"] = _order_within([source, columns["process"]], [columns["device"]])
    columns["kernel"] = np.concatenate(_names(timeline, measured, rows))
    columns["path"] = np.concatenate(_paths(captures, rows, [j.node_path for j in captures]))
    columns["place"] = np.concatenate(
        _paths(captures, rows, [_paths_without_step_numbers(j) for j in captures])
    )
    keys = [columns[name] for name in ("process", "device", "path", "kernel", *GEOMETRY)]
    columns["call"] = _occurrence(number_groups(source, *keys)[0])
    return rows, columns


def _kernels(attributed: AttributedCapture) -> Ints:
    """Return the rows of kernels in order of time."""
    activities = attributed.capture.activities
    rows = np.flatnonzero(activities.kind.among(frames.KERNEL))
    return rows[stable_order(activities.start[rows])]


def _order_within(groups: Sequence[Ints], keys: Sequence[Ints]) -> Ints:
    """Return the position of each row's keys within its group, in order of first occurrence."""
    code, first = number_groups(*groups, *keys)
    group_of_key = number_groups(*groups)[0][first]
    order = np.lexsort((first, group_of_key))
    rank = np.empty(len(first), np.int64)
    rank[order] = _occurrence(group_of_key[order])
    return rank[code]


def _occurrence(code: Ints) -> Ints:
    """Return the number of earlier rows with the same code."""
    order = stable_order(code)
    first = run_edges(code[order])
    result = np.empty(len(code), np.int64)
    result[order] = np.arange(len(code)) - np.repeat(first[:-1], np.diff(first))
    return result


def _paths_without_step_numbers(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return the path of each node as a code, and the paths; all steps have one name."""
    names = [ANY_STEP if any(k.fullmatch(op) for k in KINDS) else op for op in attributed.ops]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    code_of_op = np.array([*(numbers[name] for name in names), NONE], np.int64)
    return paths(
        attributed.attribution.nesting.parent, code_of_op[attributed.node_op], tuple(numbers)
    )


def _paths(
    captures: Sequence[AttributedCapture],
    rows: Sequence[Ints],
    coded: Sequence[tuple[Ints, list[str]]],
) -> list[Ints]:
    """Return the path of each kernel as a code that is common to both; NONE for no op."""
    numbers: dict[str, int] = {}
    result = []
    for attributed, kernel_rows, (code, names) in zip(captures, rows, coded, strict=True):
        ids = np.array(
            [*(numbers.setdefault(path, len(numbers)) for path in names), NONE], np.int64
        )
        node = attributed.attribution.node[kernel_rows]
        result.append(ids[lookup(code, node)])
    return result


def _names(
    timeline: AttributedCapture, measured: AttributedCapture, rows: tuple[Ints, Ints]
) -> list[Ints]:
    """Return the name of each kernel as a code that is common to both.

    Demangled names are compared without blanks. Kernels that were measured with short names only
    (``--print-kernel-base function``) match by short name.
    """
    (code, names), (measured_code, measured_names) = (
        _distinct_names(j, of) for j, of in zip((timeline, measured), rows, strict=True)
    )
    numbers_of = {name: number for number, (name, _) in reversed(list(enumerate(measured_names)))}
    ids = [numbers_of.get(full, numbers_of.get(short, NONE)) for full, short in names]
    return [
        np.array(ids, np.int64)[code],
        np.array([numbers_of[full] for full, _ in measured_names], np.int64)[measured_code],
    ]


def _distinct_names(
    attributed: AttributedCapture, rows: Ints
) -> tuple[Ints, list[tuple[str, str]]]:
    """Return a code per row, and the demangled name without blanks and the short name per code."""
    activities = attributed.capture.activities
    full, short = activities.full_name[rows], activities.name[rows]
    code, first = number_groups(full.codes, short.codes)
    pairs = zip(full[first], short[first], strict=True)
    return code, [("".join((whole or name).split()), name) for whole, name in pairs]
