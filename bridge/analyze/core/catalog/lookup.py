"""What a text of ``--by`` stands for: a table, or dimensions; its rows, columns and order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bridge.analyze.core.catalog import ON_HOST, TABLES, VIEWS, TableColumns, column_named
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.views import (
    ACTIVITIES,
    BY_SELF_TIME,
    BY_TOTAL,
    CALLS,
    GEOMETRY,
    OF_CAUSES,
    RANGES,
    WHAT_RAN,
)
from bridge.knowledge.suggestions import unknown_name

# Columns of a capture that importers read only for advice, and only for the quality of a capture.
ADVICE_DETAILS = frozenset(
    [
        *"json category source_kind target_kind result waits cuda_streams overhead".split(),
        *OF_CAUSES,
        *GEOMETRY,
    ]
)
QUALITY_DETAILS = frozenset(["overhead", "result"])
SAMPLE_DETAILS = ("samples",)  # samples of the CPU with their call stacks
CALL_DIMENSIONS, ACTIVITY_DIMENSIONS = (
    frozenset(name for name, dimension in DIMENSIONS.items() if dimension.kind == kind)
    for kind in (CALLS, ACTIVITIES)
)
OTHER_NAMES = {  # what others call our tables and dimensions
    "cause": "idle",
    "causes": "idle",
    "operator": "op",
    "layer": "module",
    "function": "source",
    "line": "source",
    "gpu": "device",
    "iteration": "step",
    "copy": "memcpy",
    "nccl": "collective",
    "communication": "collective",
    "shapes": "shape",
    "warmup": "first-call",
}
SYNONYMS: Mapping[
    str, tuple[str, ...]
] = {  # short names of self times; tables call the column differently
    "gpu": ("gpu_self_ns", "gap_ns", "total_ns"),
    "cpu": ("cpu_self_ns", "duration_ns"),
}
SORTED_BY = {  # what rows of tables by dimensions are sorted by, by their kind
    RANGES: BY_SELF_TIME,
    CALLS: BY_TOTAL,
    ACTIVITIES: BY_TOTAL,
}


def dimensions_of(by: str) -> tuple[str, ...]:
    """Return the dimensions of a table that is not in `VIEWS`.

    Raises ValueError with a message for the user if one of them does not exist or cannot be
    combined.
    """
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in DIMENSIONS:
            if name in VIEWS:
                raise ValueError(
                    f"{name!r} cannot be combined with others; {TABLE_LIST} shows which can"
                )
            raise ValueError(
                unknown_name(
                    "table",
                    name,
                    known=[*VIEWS, *DIMENSIONS],
                    listed_by=TABLE_LIST,
                    synonyms=OTHER_NAMES,
                )
            )
    if len(set(names)) < len(names):
        raise ValueError(f"{by!r} names a dimension twice")
    return names


def rows_of(by: str) -> str:
    """Return the kind of a table's rows: `RANGES`, `CALLS` or `ACTIVITIES`."""
    kind = VIEWS[by].kind if by in VIEWS else ""
    return kind or rows_of_dimensions(dimensions_of(by))


def rows_of_dimensions(dimensions: Collection[str]) -> str:
    """Return the kind of the rows of a table by these dimensions."""
    if not ACTIVITY_DIMENSIONS.isdisjoint(dimensions):
        return ACTIVITIES
    return RANGES if CALL_DIMENSIONS.isdisjoint(dimensions) else CALLS


def columns_are_chosen(by: str) -> bool:
    """Return whether the columns of a table can be selected; other tables have fixed columns."""
    return by not in VIEWS or bool(VIEWS[by].kind)


def sorting_columns(by: str) -> tuple[str, ...]:
    """Return the columns that the rows of a table are sorted by, largest first."""
    return VIEWS[by].sorted_by if by in VIEWS else SORTED_BY[rows_of(by)]


def columns_of(by: str) -> TableColumns:
    return TABLES[by if by in VIEWS else rows_of(by)]


def labels_of(by: str) -> tuple[str, ...]:
    """Return all columns that may name the rows of a table with selectable columns."""
    if by in VIEWS:
        return VIEWS[by].labels or (by,)
    labels = (label for name in dimensions_of(by) for label in DIMENSIONS[name].label_columns)
    return tuple(dict.fromkeys(labels))


# Views whose columns can be selected, and the others.
SELECTABLE = tuple(name for name, view in VIEWS.items() if view.kind)
FIXED = frozenset(VIEWS).difference(SELECTABLE)
TABLE_LIST = "--by list"
TIME_UNITS = ("ns", "us", "ms", "s")
DIRECTED = tuple(name for name, view in VIEWS.items() if view.directed)


def layout(by: str, *, activities: int) -> str:
    """Return the key in `TABLES` of the columns to display; without activities, of the host."""
    name = by if by in VIEWS else rows_of(by)
    on_host = name + ON_HOST
    return on_host if not activities and on_host in TABLES else name


def nothing(by: str, *, activities: int, ranges: int) -> str:
    """Return the message for a table without rows of a report with so many activities and ranges, "" for none."""
    message = VIEWS[by].nothing if by in VIEWS else ""
    if by == "op" and not ranges:
        return f"no NVTX ranges, so no ops; {WHAT_RAN if activities else host_tables(ranges)}"
    if not activities and needs_activities(by):
        return f"no kernels, memcpys or memsets; {host_tables(ranges)}"
    return message


def needs_activities(by: str) -> bool:
    """Return whether the rows of a table, by name or by dimensions, need work on a GPU."""
    if by in VIEWS:
        return VIEWS[by].on_gpu
    return not ACTIVITY_DIMENSIONS.isdisjoint(by.split(","))


def host_tables(ranges: int) -> str:
    """Return a hint at the tables that show the host, for a report with so many ranges and no activities."""
    if not ranges:
        return "bridge report REPORT --by api shows the time of CUDA calls"
    return "bridge report REPORT --by op (or module, step) shows CPU times"


def column_meant(word: str, names: Sequence[str]) -> str | None:
    """Return the column of a table to sort or filter by: as `column_named`, or of a short name."""
    candidates = (word, f"{word}_ns", *SYNONYMS.get(word, ()))
    short = next((name for name in candidates if name in names), None)
    return short or column_named(word, names)
