"""Which table is made of every report, and with which columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze import causes, kinds
from bridge.analyze.groups import quantiles, ratio
from bridge.analyze.tables.range_metrics import EXPOSED, KINDS
from bridge.analyze.tables.statistics import TIMES, Columns, spread, statistic_names
from bridge.analyze.tables.table import ROWS, Options, made_of, rows_of, wanted
from bridge.analyze.tables.views import ACTIVITIES, CALLS, DIMENSIONS, RANGES, VIEWS, dimensions_of
from bridge.join.attributed import BOTH
from bridge.scale.merging import Merged, Wholes

# -- Which columns of a table add up over reports, and what the others are made of: by the functions that one report uses


MEDIAN, SHARE_OF_CORES = "median_ns", "tensor_core_share"
CORES = tuple(name for name in kinds.TENSOR_CORE_COLUMNS if name != SHARE_OF_CORES)
CPU = ("cpu_self_ns", "cpu_total_ns")
ON_GPU = ("gpu_self_ns", "gpu_total_ns", "gpu_busy_ns", "gpu_span_ns")
ADDING_UP: Mapping[str, Collection[str]] = {
    RANGES: {"calls", "activities", *KINDS, *ON_GPU, *CPU, *causes.COLUMNS[:6], *EXPOSED, *CORES},
    CALLS: {"count", "total_ns", "activities", "gpu_ns"},
    ACTIVITIES: {"count", "total_ns", "busy_ns", "span_ns", "bytes", *CORES},
}
OF_TIMES: Mapping[str, tuple[str, ...]] = {
    RANGES: ("gpu_", "cpu_"),
    CALLS: ("",),
    ACTIVITIES: ("",),
}
RATIOS: Mapping[str, Mapping[str, tuple[str, str]]] = {  # of a column and another, or a whole
    RANGES: {
        "share": ("gpu_self_ns", "gpu"),
        "total_share": ("gpu_total_ns", "gpu"),
        "cpu_share": ("cpu_self_ns", "cpu"),
        SHARE_OF_CORES: ("tensor_core_ns", "in_kernels_ns"),
    },
    CALLS: {"share": ("total_ns", "calls")},
    ACTIVITIES: {
        "share": ("total_ns", "gpu"),
        "gb_per_s": ("bytes", "total_ns"),
        SHARE_OF_CORES: ("tensor_core_ns", "in_kernels_ns"),
    },
}
# What a store keeps of every report: what does not need a look at all that ran at the same time.
KEPT: Mapping[str, tuple[str, ...]] = {
    RANGES: ("calls", "activities", *KINDS, *ON_GPU, *CPU, f"gpu_{TIMES}", f"cpu_{TIMES}"),
    CALLS: ("count", "total_ns", "activities", "gpu_ns", TIMES),
    ACTIVITIES: ("count", "total_ns", "busy_ns", "span_ns", "bytes", TIMES),
}


def needed(rows: str, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that each report is asked for; ValueError, in words for the user, for what is not put together."""
    found: list[str] = []
    for column in columns:
        if column in ADDING_UP[rows]:
            found.append(column)
        elif column in RATIOS[rows]:
            found += (c for c in RATIOS[rows][column] if c in ADDING_UP[rows])
        elif (prefix := _prefix(rows, column)) is not None:
            found.append(prefix + TIMES)
        else:
            raise ValueError(
                f"no {column} over reports apart: give them without --workers and --scheduler"
            )
    return tuple(dict.fromkeys(found))


def _prefix(rows: str, column: str) -> str | None:
    """Return what the times begin with that a column is a statistic of, None for another column."""
    if column == MEDIAN and rows == ACTIVITIES:
        return ""
    return next((prefix for prefix in OF_TIMES[rows] if column in statistic_names(prefix)), None)


def figures(rows: str, merged: Merged, whole: Wholes, columns: Iterable[str]) -> Columns:
    """Return the columns of a table, those that `needed` has names for, of what has been put together."""
    found: Columns = {**merged.sums}
    for prefix in OF_TIMES[rows]:
        if (times := merged.times.get(prefix + TIMES)) is not None:
            group, values = times.every()
            found |= spread(prefix, group, values, merged.rows)
            (found[MEDIAN],) = quantiles(group, values, merged.rows, 0.5)
    for name, (part, of) in RATIOS[rows].items():
        if part in found and (of in whole or of in found):
            by: np.ndarray | int = whole[of] if of in whole else found[of]
            found[name] = ratio(found[part], by)
    return {name: found[name] for name in columns}


# -- Which table is made of every report, and with which columns


REPORT = "report"
OF_ONE = frozenset(["report", "device", "stream", "thread", "process"])  # no row is of two reports
# What a store keeps a table of: dimensions for themselves, and some together. Those with about a row per call (paths that
# hold the number of a step, modules with their ops) are kept where they are asked for.
ALONE = (
    "direction shape dtype thread process report api kind library fused stream geometry rank host"
).split()
TOGETHER = (
    "report,step report,phase report,module report,device op,kernel op,shape op,direction op,step op,kind"
    " op,rank kernel,direction kernel,device kernel,rank kind,rank"
).split()


@dataclass(frozen=True)
class Asked:
    """``by`` as `key` writes it, the options that change its rows, and ``columns`` that are put together."""

    by: str
    columns: tuple[str, ...]
    kernel_names: str = "short"
    inclusive: bool = False
    memory_kinds: bool = False
    direction: str = BOTH

    @property
    def name(self) -> str:
        """What the table goes by, whatever columns it has."""
        words = [self.by, *(w for w in ("inclusive", "memory_kinds") if getattr(self, w))]
        words += [self.kernel_names] if self.kernel_names != "short" else []
        return " ".join(words + ([self.direction] if self.direction != BOTH else []))


def key(by: str) -> str:
    """Return a table's name without the order of its dimensions, and without that of reports, which each has of itself."""
    if by in VIEWS:
        return by
    names = set(dimensions_of(by))
    rest = names - {REPORT}
    is_other = rest <= VIEWS.keys() - ROWS.keys() and len(rest) == 1  # --by step is no breakdown
    return ",".join(sorted(names if is_other else rest or names))


def asked(by: str, options: Options) -> Asked:
    """Return what each report is asked for to make a table; ValueError, in words for the user, for what is not put together."""
    checked(by, options)
    columns = needed(rows_of(by), made_of(by, wanted(by, options)))
    return _of(by, columns, options)


def checked(by: str, options: Options) -> None:
    """Raise ValueError for a table that is not put together."""
    if by in VIEWS and by not in ROWS:
        alone = ", ".join((*ROWS, *(name for name in DIMENSIONS if name not in VIEWS)))
        raise ValueError(
            f"no table {by!r} over reports apart: --by is one of {alone}; or several dimensions"
        )
    if options.metrics:
        raise ValueError("no metrics over reports apart: give them without --workers")


def _of(by: str, columns: Sequence[str], options: Options) -> Asked:
    return Asked(
        key(by),
        tuple(columns),
        options.kernel_names,
        options.inclusive,
        options.memory_kinds,
        options.direction,
    )


def named(by: str, options: Options) -> str:
    """Return what the table goes by that such a one is made of."""
    return _of(by, (), options).name


def only(tables: Sequence[str]) -> list[Asked]:
    """Return tables by name, with all columns that are put together; ValueError, in words for the user, for one that is not."""
    for by in tables:
        checked(by, Options())
    return [_of(by, KEPT[rows_of(by)], Options()) for by in tables]


def kept(also: Sequence[str] = ()) -> tuple[Asked, ...]:
    """Return the tables that a store keeps: views, dimensions, some pairs of them, and those asked for besides.

    Raises ValueError, in words for the user, for one that is not put together.
    """
    found = [_of(by, KEPT[rows_of(by)], Options()) for by in (*ROWS, *ALONE, *TOGETHER)]
    found += only(also)
    found += [
        _of("op-kernel", KEPT[rows_of("op-kernel")], Options(inclusive=True)),
        _of("memcpy", KEPT[rows_of("memcpy")], Options(memory_kinds=True)),
    ]
    return tuple({one.name: one for one in found}.values())
