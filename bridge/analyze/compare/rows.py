"""Match the parts and the calls of two captures, also kernels renamed by another build."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.compare.parts import Parts
from bridge.analyze.core.groups import counts, quantiles, ratio, sums, texts
from bridge.analyze.tables.dimensions import range_events
from bridge.analyze.tables.range_columns import first_slices
from bridge.importers.arrays import factorize, lookup, scatter
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges, stable_order
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import path_codes
from bridge.knowledge.kernels.classes import MAX_NAME_LENGTH

# -- Names of kernels without parts that depend on the build or the input


HASH = re.compile(
    r"(?<![0-9a-zA-Z])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9a-zA-Z])"
    r"|17h[0-9a-f]{16}E"  # Rust's, in a mangled name
    r"|(?<=_GLOBAL__N__)[0-9a-f]{8,}|(?<=_INTERNAL_)[0-9a-f]{8,}"
)
LAMBDA = re.compile(r"(\{?lambda\([^)]*\)|\(?unnamed[ \w]*|'lambda\d*')#?\d*\)?\}?")
TRITON_SUFFIX = re.compile(
    r"_(?:\d++(?:de|d|e|c)?+)++$"
)  # Triton's counters and specialised arguments
COUNTER = re.compile(r"(?:\d++[._])++")  # matched on the reversed name, without backtracking
TILE = re.compile(r"(?<![a-zA-Z0-9])\d+x\d+(?:x\d+)*(?![0-9])|(?<=_)(?:stages?|warps?|splitK)_?\d+")
VERSION = re.compile(r"_v\d+(?=_|$)|_?(?<![a-zA-Z])sm_?\d+a?(?![0-9])")
MANGLED = re.compile(r"_ZN?K?")
LENGTH = re.compile(r"\d{1,6}")
GENERATED = re.compile(
    r"^(?:triton|fused|fusion|loop|input|wrapped|default_function|tvmgen|kernel)|fusion"
)


def without_build_details(name: str) -> str:
    """Return a name without hashes, numbers of lambdas and counters of generated kernels."""
    name = name[:MAX_NAME_LENGTH]
    if GENERATED.search(name):
        name = _without_counters(TRITON_SUFFIX.sub("", name))
    return LAMBDA.sub("lambda", HASH.sub("#", name))


def without_arguments(name: str) -> str:
    """Return a name also without template arguments, parameters and return type.

    Of a mangled name the identifiers are returned.
    """
    name = without_build_details(name)
    if MANGLED.match(name):
        return "::".join(_parts(name)) or name
    bare = _without_brackets(name.replace("(anonymous namespace)", "anonymous"))
    return bare.strip().rpartition(" ")[2] or name


def without_tiles(name: str) -> str:
    """Return a name also without tile sizes, stages and architecture versions."""
    return VERSION.sub("", TILE.sub("#", without_arguments(name)))


NAME_FORMS: tuple[Callable[[str], str], ...] = (
    without_build_details,
    without_arguments,
    without_tiles,
)


def _without_counters(name: str) -> str:
    """Return a name without counters at its end."""
    match = COUNTER.match(name[::-1])
    return name[: len(name) - match.end()] if match else name


def _without_brackets(name: str) -> str:
    """Return the text outside ``<...>`` up to the first ``(`` outside of them."""
    result, depth = [], 0
    for character in name:
        if character == "(" and not depth:
            break
        depth += (character == "<") - (character == ">" and depth > 0)
        if not depth and character != ">":
            result.append(character)
    return "".join(result)


def _parts(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name, up to its template arguments."""
    result, place = [], MANGLED.match(mangled).end()  # type: ignore[union-attr]
    while place < len(mangled) and (length := LENGTH.match(mangled, place)):
        place = length.end() + int(length[0])
        result.append(mangled[length.end() : place])
    return result


# -- Matching of parts


KERNEL, KERNEL_BEFORE = "kernel", "kernel_before"
Labels = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Rows:
    """A row per part of either side: its labels, and the row of each part ``before`` and ``after``.

    If kernels are a dimension, `KERNEL_BEFORE` is the former name of a renamed kernel, else ''.
    """

    labels: Labels
    before: Ints
    after: Ints

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))


def match_parts(before: Parts, after: Parts) -> Rows:
    """Match the parts of two captures by their labels; no part is matched twice."""
    columns = {
        name: np.concatenate([_plain_array(side.labels[name]) for side in (before, after)])
        for name in before.labels
    }
    row = np.zeros(len(before) + len(after), np.int64)
    for column in columns.values():
        codes, distinct = factorize(column)
        row = factorize(row * max(1, len(distinct)) + codes)[0]
    first = scatter(np.arange(len(row))[::-1], row[::-1], int(row.max(initial=NONE)) + 1)
    labels = {name: column[first] for name, column in columns.items()}
    rows = Rows(labels, row[: len(before)], row[len(before) :])
    return _match_renamed(rows, before, after) if KERNEL in labels else rows


def _plain_array(column: NDArray[np.generic]) -> NDArray[np.generic]:
    return column if column.dtype == np.int64 else column.astype(object)


def _match_renamed(rows: Rows, before: Parts, after: Parts) -> Rows:
    """Merge rows of kernels on one side each whose names differ only by the build."""
    target = np.arange(len(rows))
    name_before = texts([""] * len(rows))
    only_before, only_after = (
        _is_one_sided(rows, rows.before, rows.after),
        _is_one_sided(rows, rows.after, rows.before),
    )
    times = [
        sums(codes, side.totals, len(rows))
        for codes, side in ((rows.before, before), (rows.after, after))
    ]
    for form in NAME_FORMS:
        pairs = _pairs(
            _rows_by_form(rows.labels, only_before, times[0], form),
            _rows_by_form(rows.labels, only_after, times[1], form),
        )
        for old, new in pairs:
            target[old], name_before[new] = new, rows.labels[KERNEL][old]
            only_before[old] = only_after[new] = False
    used, new_row = np.unique(target, return_inverse=True)
    labels = {
        name: column[used] for name, column in {**rows.labels, KERNEL_BEFORE: name_before}.items()
    }
    return replace(rows, labels=labels, before=new_row[rows.before], after=new_row[rows.after])


def _is_one_sided(rows: Rows, first: Ints, second: Ints) -> Flags:
    """Return whether each row is only on the first side."""
    result = np.zeros(len(rows), bool)
    result[first] = True
    result[second] = False
    return result


def _rows_by_form(
    labels: Labels, is_selected: Flags, time: Ints, form: Callable[[str], str]
) -> dict[tuple[object, ...], list[int]]:
    """Return selected rows by labels with a form of the kernel's name, longest time first."""
    result: dict[tuple[object, ...], list[tuple[int, str, int]]] = defaultdict(list)
    for row in np.flatnonzero(is_selected).tolist():
        key = {name: column[row] for name, column in labels.items()}
        name = str(key[KERNEL])
        result[tuple((key | {KERNEL: form(name)}).values())].append((-int(time[row]), name, row))
    return {key: [row for _, _, row in sorted(members)] for key, members in result.items()}


def _pairs(
    left: dict[tuple[object, ...], list[int]], right: dict[tuple[object, ...], list[int]]
) -> list[tuple[int, int]]:
    """Return the first row of each key with the first one of the other side, and so on."""
    return [pair for key in left for pair in zip(left[key], right.get(key, ()), strict=False)]


# -- Matching of calls: the k-th call of a path in a process with the k-th one of the other side


@record
class CallPairs:
    """Pairs of calls, each a position among the calls of its capture."""

    before: Ints
    after: Ints


def match_calls(before: AttributedCapture, after: AttributedCapture) -> CallPairs:
    """Match calls by process, path and order in time.

    A process is identified by its position, by id, among those of its file, as ranks are started in
    that order.
    """
    sides = [_Calls.of(attributed) for attributed in (before, after)]
    keys = [np.concatenate([getattr(side, name) for side in sides]) for name in ("report", "place")]
    number, rows = number_groups(_common_paths(sides), *keys)
    groups = np.split(number, [len(sides[0].report)])
    orders = [
        order[stable_order(group[order])]
        for group, order in zip(groups, (side.order for side in sides), strict=True)
    ]
    matched = np.minimum(*(counts(group, len(rows)) for group in groups))
    return CallPairs(
        *(
            _first_of_groups(group[order], order, matched)
            for group, order in zip(groups, orders, strict=True)
        )
    )


@record
class _Calls:
    """The calls of a side: file, position of the process, and their order in time.

    The tree of ranges has a node of each call, also of one that is in no tree: a root of its own.
    ``name`` is a code of the name of each node.
    """

    report: Ints
    place: Ints
    order: Ints
    node: Ints
    parent: Ints
    name: Ints
    names: Sequence[str]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> _Calls:
        firsts, ranges = first_slices(attributed), attributed.capture.ranges
        parent, (name, names) = attributed.hierarchy.parent, attributed.hierarchy_names
        node = range_events(attributed, firsts).node
        outside = np.flatnonzero(node == NONE)
        node[outside] = len(parent) + np.arange(len(outside))
        return cls(
            report=ranges.report[firsts],
            place=_process_positions(ranges.report[firsts], ranges.process[firsts]),
            order=order_by(ranges.start[firsts]),
            node=node,
            parent=np.concatenate((parent, np.full(len(outside), NONE))),
            name=np.concatenate((name, attributed.op[firsts[outside]])),
            names=names,
        )


def _common_paths(sides: Sequence[_Calls]) -> Ints:
    """Return the path of names to each call of all sides, as a code that is the same on all sides."""
    code = factorize(texts([name for side in sides for name in side.names]))[0]
    parents, names, calls = [], [], []
    nodes = known = 0
    for side in sides:
        parents.append(np.where(side.parent == NONE, NONE, side.parent + nodes))
        names.append(code[known + side.name])
        calls.append(side.node + nodes)
        nodes, known = nodes + len(side.parent), known + len(side.names)
    path, _ = path_codes(np.concatenate(parents), np.concatenate(names))
    return path[np.concatenate(calls)]


def _process_positions(report: Ints, process: Ints) -> Ints:
    """Return the position of each call's process among those of its file."""
    code, rows = number_groups(report, process)
    position = np.arange(len(rows))
    start = np.zeros(len(rows), np.int64)
    for first in run_edges(report[rows])[:-1].tolist():
        start[first:] = first
    result: Ints = (position - start)[code]
    return result


def _first_of_groups(group: Ints, rows: Ints, size: Ints) -> Ints:
    """Return the first ``size`` rows of each group; groups are sorted."""
    edges = run_edges(group)
    position = np.arange(len(group)) - np.repeat(edges[:-1], np.diff(edges))
    return rows[position < size[group]]


def call_metrics(
    pairs: CallPairs, sides: tuple[Parts, Parts], rows: tuple[Ints, Ints], size: int
) -> dict[str, np.ndarray]:
    """Return metrics of the self times of the calls of each of ``size`` rows.

    ``rows`` are the rows of the parts of each side. Columns: matched_calls, unmatched_before,
    unmatched_after, call_mean_diff_ns, call_median_diff_ns (of matched calls, 0 if there are none).
    A pair whose calls are in different rows is no match.
    """
    row = [row_of[side.call_part] for row_of, side in zip(rows, sides, strict=True)]
    is_match = row[0][pairs.before] == row[1][pairs.after]
    first, second = pairs.before[is_match], pairs.after[is_match]
    diff = call_times(sides[1])[second] - call_times(sides[0])[first]
    row_of_pair = row[0][first]
    count, total = counts(row_of_pair, size), sums(row_of_pair, diff, size)
    (median,) = quantiles(row_of_pair, diff, size, 0.5)
    return {
        "matched_calls": count,
        "unmatched_before": counts(row[0], size) - count,
        "unmatched_after": counts(row[1], size) - count,
        "call_mean_diff_ns": ratio(total, count),
        "call_median_diff_ns": median,
    }


def call_times(parts: Parts) -> Ints:
    """Return the self time of each call in ns."""
    call = lookup(parts.attributed.call, parts.range)
    has_call = call != NONE
    return sums(call[has_call], parts.ns[has_call], len(parts.call_part))
