"""Column tables: what frames a report has, how they are made, and how many become one.

Times and ids are int64, -1 where missing; names are categoricals; a frame's row number is its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from importers.texts import Ints

# -- Keys of several columns become one number each, alike in several tables


def shared(*tables: Sequence[Ints]) -> list[Ints]:
    """Number the distinct keys of several tables alike; a key is a value of each of a table's columns."""
    rows = [len(columns[0]) for columns in tables]
    codes = np.zeros(sum(rows), np.int64)
    telling = [column for column in zip(*tables, strict=True) if not _one_value(column)]
    for nth, column in enumerate(telling):
        own, values = pd.factorize(np.concatenate(column))
        codes = pd.factorize(codes * len(values) + own)[0] if nth else own
    return np.split(codes.astype(np.int64, copy=False), np.cumsum(rows)[:-1])


def _one_value(columns: Sequence[Ints]) -> bool:
    """Whether columns say the same in every row, as far as can be told without looking at all."""
    filled = [c for c in columns if len(c)]
    return all(c.strides == (0,) and c[0] == filled[0][0] for c in filled)


# -- Column tables: what frames a report has, how they are made, and how many become one


MISSING = -1

# What `bridge.annotate` writes into NVTX, as `bridge.annotate.stack` and `bridge.annotate.instant` have it:
# the payloads that all slices of one call share, and what the marks begin with that are samples of a counter.
CALL_ID = 0x4E42  # "NB" in the top 16 bits of a payload
CALL_ID_SHIFT = 48
COUNTER = "counter:"

NAMES = frozenset(  # columns that are categoricals, in whatever frame
    "name full_name mangled kind domain_name category json process_name thread_name".split()
)
FLAGS = frozenset(["open"])
# Codes of these categoricals mean the same everywhere, in whatever order a file has them.
ACTIVITY_KINDS = KERNEL, MEMCPY, MEMSET, GRAPH = ("kernel", "memcpy", "memset", "graph")
RANGE_KINDS = PUSH_POP, START_END = ("push_pop", "start_end")
WAIT_KINDS = ("unknown", "event", "stream_wait", "stream", "context", "event_record")
MEMORY_KINDS = tuple(  # what source_kind and target_kind number
    "pageable pinned device array managed device_static managed_static unknown".split()
)
KINDS = {
    "activities": ACTIVITY_KINDS,
    "ranges": RANGE_KINDS,
    "waits": WAIT_KINDS,
    "memory": MEMORY_KINDS,
}
OPERATIONS = ALLOCATE, RELEASE = (0, 1)  # what `operation` says of memory
HELD = 2  # the same, of what was allocated before the capture and is not released in it
RESERVED = 3  # and where only what is reserved changed: no address, no bytes
SEVERITIES = ("unknown", "info", "warning", "error", "verbose")  # what `severity` numbers
DEVICE_FACTS = tuple(  # of a GPU: bytes, bytes per second, Hz, counts
    "memory_bytes memory_bandwidth clock_hz l2_bytes compute_major compute_minor sm_count warp_size"
    " warps_per_sm blocks_per_sm threads_per_block registers_per_sm registers_per_block shared_per_sm"
    " shared_per_block shared_per_block_optin".split()
)
FRAMES: Mapping[str, tuple[str, ...]] = {
    "ranges": tuple(
        "start end thread process domain domain_name name kind category color payload json open"
        " text report".split()
    ),
    "launches": tuple("start end thread process correlation name report".split()),
    "activities": tuple(
        "start end kind process device context stream correlation name full_name mangled bytes"
        " copy_kind source_kind target_kind migration_cause grid_x grid_y grid_z block_x block_y block_z registers shared_static"
        " shared_dynamic green_context graph graph_node report".split()
    ),
    "waits": tuple("start end kind process device context stream correlation event report".split()),
    "memory": tuple(
        "time thread process device context stream correlation kind operation address bytes pool"
        " reserved allocated name report".split()
    ),
    "marks": tuple(
        "time thread process domain domain_name name category payload json report".split()
    ),
    "graph_nodes": tuple("time thread process node original report".split()),
    "overhead": tuple("start end thread process correlation name report".split()),
    "diagnostics": tuple("time process source severity name report".split()),
    "threads": tuple("thread process name report".split()),
    "processes": tuple("process name report".split()),
    "devices": ("process", "device", "gpu", "name", *DEVICE_FACTS, "report"),
}


def frame(
    kind: str, columns: Mapping[str, Ints | pd.Categorical | NDArray[np.bool_]]
) -> pd.DataFrame:
    """Return the frame of this kind; integer columns not given are missing in every row."""
    rows = len(next(iter(columns.values()))) if columns else 0
    data = {c: columns[c] if c in columns else _missing(c, rows) for c in FRAMES[kind]}
    table = pd.DataFrame(data, copy=False)
    if kind in KINDS and tuple(table["kind"].cat.categories) != KINDS[kind]:
        return table.assign(kind=_as_kinds(table["kind"], KINDS[kind]))
    return table


def _as_kinds(column: pd.Series, kinds: tuple[str, ...]) -> pd.Categorical:
    of_ours = np.array([kinds.index(name) for name in column.cat.categories] + [MISSING])
    return names(of_ours[codes(column)], kinds)


def is_kind(table: pd.DataFrame, *kinds: str) -> NDArray[np.bool_]:
    """Tell which rows are of one of these kinds."""
    of = table["kind"].cat
    wanted = np.array([*(name in kinds for name in of.categories), False])
    return wanted[of.codes.to_numpy()]


def names(codes: NDArray[np.signedinteger], categories: Sequence[str]) -> pd.Categorical:
    """Return a column of names from a code per row and the distinct names."""
    dtype = pd.CategoricalDtype(pd.Index(list(categories), dtype=object))
    return pd.Categorical.from_codes(codes, dtype=dtype)


def named(texts: Sequence[str]) -> pd.Categorical:
    """Return a column of names from a text per row."""
    own, distinct = pd.factorize(np.array(texts, dtype=object))
    return names(own.astype(np.int64), list(distinct))


def codes(column: pd.Series) -> Ints:
    """Return the code of each row's name, -1 where there is none."""
    found: Ints = column.array.codes.astype(np.int64)  # `cat.codes` is a Series: slow to make
    return found


def ints(table: pd.DataFrame, column: str) -> Ints:
    """Return an integer column as it lies in memory."""
    found: Ints = table[column].to_numpy()
    return found


def pick(column: Ints, rows: Ints) -> Ints:
    """Return a column's values at ascending rows, the column itself if those are all."""
    return column if len(rows) == len(column) else column[rows]


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put frames of one kind one after another, categoricals staying categoricals."""
    if len(frames) == 1:
        return frames[0]
    columns = {c: _concat([f[c] for f in frames]) for c in frames[0].columns}
    return pd.DataFrame(columns, copy=False)


def _concat(parts: list[pd.Series]) -> pd.Categorical | NDArray[np.generic]:
    if isinstance(parts[0].dtype, pd.CategoricalDtype):
        return _concat_names(parts)
    return np.concatenate([p.to_numpy() for p in parts])


def _concat_names(parts: list[pd.Series]) -> pd.Categorical:
    """Put names one after another; equal ones of several parts become one category."""
    known = [p.cat.categories for p in parts]
    first = np.cumsum([0, *map(len, known)]).tolist()
    moved = [
        np.where(own == MISSING, MISSING, own + at)
        for own, at in zip(map(codes, parts), first, strict=False)
    ]
    categories = [name for of_part in known for name in of_part]
    own, distinct = pd.factorize(np.array(categories, dtype=object))
    return names(np.append(own, MISSING)[np.concatenate(moved)], list(distinct))


def _missing(column: str, rows: int) -> Ints | pd.Categorical | NDArray[np.bool_]:
    if column in NAMES:
        return names(np.full(rows, MISSING, np.int64), [])
    if column in FLAGS:
        return np.zeros(rows, bool)
    value = 0 if column == "report" else MISSING
    return np.broadcast_to(np.int64(value), (rows,))
