"""Make tables of the oneDNN primitives that ran on the CPU, from the log of oneDNN."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from bridge.analyze.core.groups import Floats, counts, quantiles, ratio, sums, texts, times
from bridge.analyze.core.table import Table
from bridge.importers.onednn import Events, Log
from bridge.join.arrays import NONE, Ints, number_groups

# -- FLOPs of a primitive, from the problem in the log


AXES = "dhw"
EXTENT = re.compile(r"([a-z]+)(\d+)")
MATRICES = re.compile(r"[\dx]+:[\dx]+(?::[\dx]+)?")  # the third one is the output
MAX_FLOPS = 1 << 52  # larger numbers are from damaged lines
GEMM = re.compile(r"(?:b\d+)?m\d+n\d+k\d+")  # before 1.6


def problem_flops(primitive: str, problem: str) -> int | None:
    """Return the FLOPs of one execution, None if unknown."""
    count = COUNTS.get(primitive)
    try:
        result = count(problem) if count else None
    except (KeyError, ValueError):  # a missing extent, or one with too many digits
        return None
    return None if result is None or result > MAX_FLOPS else result


def _convolution(problem: str, positions: str = "o") -> int:
    """Count each weight once per position: of the output, or of the input if transposed."""
    size = _extents(problem)
    channels = size["ic"] * size["oc"] // (size.get("g", 1) or 1)
    return 2 * size["mb"] * channels * _axes(size, "k") * _axes(size, positions)


def _deconvolution(problem: str) -> int:
    return _convolution(problem, "i")


def _inner_product(problem: str) -> int:
    size = _extents(problem)
    return 2 * size["mb"] * size["ic"] * size["oc"] * _axes(size, "i")


def _matmul(problem: str) -> int | None:
    if GEMM.fullmatch(problem):
        size = _extents(problem)
        return 2 * size.get("b", 1) * size["m"] * size["n"] * size["k"]
    if not MATRICES.fullmatch(problem.partition(":dst")[0]):
        return None
    a, b = (
        [int(extent) for extent in shape.split("x") if extent] for shape in problem.split(":")[:2]
    )
    if len(a) != len(b) or len(a) < 2 or a[-1] != b[-2]:  # noqa: PLR2004 - rows and columns
        return None
    batch = prod(map(max, a[:-2], b[:-2]))  # extents of 1 are broadcast
    return 2 * batch * a[-2] * a[-1] * b[-1]


def _extents(problem: str) -> dict[str, int]:
    return {name: int(size) for name, size in EXTENT.findall(problem)}


def _axes(size: Mapping[str, int], prefix: str) -> int:
    return prod(size.get(f"{prefix}{axis}", 1) for axis in AXES)


COUNTS: dict[str, Callable[[str], int | None]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": _inner_product,
    "matmul": _matmul,
}


# -- Tables of primitives


DIMENSIONS = {  # dimension of a table, and the field of a log line
    "primitive": "primitive",
    "impl": "implementation",
    "prop": "prop_kind",
    "problem": "problem_desc",
    "layout": "memory_descriptors",
    "attributes": "attributes",
    "aux": "auxiliary",
    "engine": "engine",
}
EXECUTED = "exec"


class Totals(NamedTuple):
    """Number of calls and of created primitives, with their times in ns."""

    calls: int
    total_ns: int
    creations: int
    creation_ns: int


def totals(table: Table) -> Totals:
    """Return the totals of a table of `by_dimensions`."""
    return Totals(*(int(table[column].sum()) for column in Totals._fields))


def executed(log: Log, component: str) -> int:
    """Return how often primitives of a component ran."""
    events = log.events
    return int((events.component.among(component) & events.operation.among(EXECUTED)).sum())


def by_dimensions(log: Log, dimensions: Sequence[str], component: str) -> Table:
    """Return one row per combination of ``dimensions``, sorted by time, largest first.

    Columns: the dimensions; calls, total_ns, share (of the time of all rows), mean_ns, median_ns,
    min_ns, max_ns; flop (of all calls) and gflop_per_s, -1 where the FLOPs of a call are unknown;
    creations and creation_ns, of primitives that were created or found in the cache, which a log
    has from level 2 on.
    """
    events = log.events.take(log.events.component.among(component))
    fields = [DIMENSIONS[name] for name in dimensions]
    codes = [events[field].codes for field in fields]
    group, first = number_groups(*codes)
    table = Table(
        {
            **{
                name: texts(events[field].texts)[code[first]]
                for name, field, code in zip(dimensions, fields, codes, strict=True)
            },
            **_executed(events, group, len(first)),
            **_created(events, group, len(first)),
        }
    )
    return table.sort_values(["total_ns", *dimensions], ascending=[False, *[True] * len(fields)])


def _executed(events: Events, group: Ints, groups: int) -> dict[str, Ints | Floats]:
    is_executed = events.operation.among(EXECUTED)
    group, time = group[is_executed], events.duration_ns[is_executed]
    flop = _flop(events.take(is_executed), group, groups)
    result = times(group, time, groups)
    total = np.asarray(result["total_ns"], np.int64)
    unknown = (flop == NONE) | (total == 0)
    gflop_per_s = np.where(unknown, NONE, ratio(flop, total))
    return {
        "calls": result["count"],
        "total_ns": total,
        "share": ratio(total, int(total.sum())),
        "mean_ns": result["mean_ns"],
        "median_ns": quantiles(group, time, groups, 0.5)[0],
        "min_ns": np.maximum(result["min_ns"], 0),
        "max_ns": np.maximum(result["max_ns"], 0),
        "flop": flop,
        "gflop_per_s": gflop_per_s,
    }


def _created(events: Events, group: Ints, groups: int) -> dict[str, Ints]:
    is_creation = ~events.operation.among(EXECUTED)
    time = events.duration_ns[is_creation]
    return {
        "creations": counts(group[is_creation], groups),
        "creation_ns": sums(group[is_creation], time, groups),
    }


def _flop(events: Events, group: Ints, groups: int) -> Ints:
    """Return the FLOPs of each group, NONE where those of one of its calls are unknown."""
    primitive, problem = (events[name].codes for name in ("primitive", "problem_desc"))
    code, first = number_groups(primitive, problem)
    names, problems = (list(events[name].texts) for name in ("primitive", "problem_desc"))
    flops_of_code = [
        problem_flops(names[a], problems[b])
        for a, b in zip(primitive[first].tolist(), problem[first].tolist(), strict=True)
    ]
    flops = np.array([NONE if flop is None else flop for flop in flops_of_code], np.int64)[code]
    unknown = counts(group[flops == NONE], groups) > 0
    is_unknown = unknown | (counts(group, groups) == 0)
    return np.where(is_unknown, NONE, sums(group, np.maximum(flops, 0), groups))
