"""The frames of a capture: their columns, how they are made, and how several become one.

Times and ids are int64, -1 where missing. Names are categoricals. The row number is the id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.importers.texts import Ints

MISSING = -1
# Columns thread and process have the form of the globalTid of nsys: hardware and virtual machine
# (16 bits), process id (24), thread id (24).
ID_BITS = 0xFFFFFF
PID_SHIFT = 24  # of the id of a process in a globalPid
Process = TypeVar("Process", int, Ints)

# Constants of `bridge.annotate`: the marker in the payloads that all slices of a call share, and
# the prefix of the marks that are samples of a counter.
CALL_ID = 0x4E42  # "NB" in the top 16 bits of a payload
CALL_ID_SHIFT = 48
# The domain and the names of ranges that nsys --trace=python-gil records for threads of Python.
GIL_DOMAIN, HOLDS_GIL, WAITS_FOR_GIL = "GIL Trace", "Holding GIL", "Waiting for GIL"
COUNTER = "counter:"

NAMES = frozenset(  # columns that are categoricals in every frame
    "name full_name mangled kind domain_name category json process_name thread_name"
    " reduction metric".split()
)
FLAGS = frozenset(["open", "on_cpu"])
# The codes of these categoricals are the same in all captures.
ACTIVITY_KINDS = KERNEL, MEMCPY, MEMSET, GRAPH = ("kernel", "memcpy", "memset", "graph")
RANGE_KINDS = PUSH_POP, START_END = ("push_pop", "start_end")
WAIT_KINDS = ("unknown", "event", "stream_wait", "stream", "context", "event_record")
STREAM_KINDS = ("unknown", "blocking", "non_blocking", "null")
MEMORY_KINDS = tuple(  # codes of source_kind and target_kind
    "pageable pinned device array managed device_static managed_static unknown".split()
)
KINDS = {
    "activities": ACTIVITY_KINDS,
    "ranges": RANGE_KINDS,
    "waits": WAIT_KINDS,
    "memory": MEMORY_KINDS,
    "cuda_streams": STREAM_KINDS,
}
OPERATIONS = ALLOCATE, RELEASE = (0, 1)  # values of `operation` in the frame memory
HELD = 2  # allocated before the capture and not released in it
RESERVED = 3  # only the reserved bytes changed: no address, no bytes
SEVERITIES = ("unknown", "info", "warning", "error", "verbose")  # codes of `severity`
# `source` of a quoted line of the program in the frame diagnostics, and of a rate that it printed; nsys uses 0 to 3.
PROGRAM, RATE = 100, 101
DEVICE_FACTS = tuple(  # properties of a GPU in bytes, bytes per second, Hz and counts
    "memory_bytes memory_bandwidth clock_hz l2_bytes compute_major compute_minor sm_count warp_size"
    " warps_per_sm blocks_per_sm threads_per_block registers_per_sm registers_per_block shared_per_sm"
    " shared_per_block shared_per_block_optin".split()
)
FRAMES: Mapping[str, tuple[str, ...]] = {
    "ranges": tuple(
        "start end thread process domain domain_name name kind category color payload json open"
        " text report".split()
    ),
    "launches": tuple("start end thread process correlation name result report".split()),
    "activities": tuple(
        "start end kind process device context stream correlation name full_name mangled bytes"
        " copy_kind source_kind target_kind migration_cause grid_x grid_y grid_z block_x block_y"
        " block_z registers shared_static shared_dynamic green_context graph graph_node report".split()
    ),
    "waits": tuple("start end kind process device context stream correlation event report".split()),
    "cuda_streams": ("process", "context", "stream", "kind", "report"),
    "memory": tuple(
        "time thread process device context stream correlation kind operation address bytes pool"
        " reserved allocated name report".split()
    ),
    "marks": tuple(
        "time thread process domain domain_name name category payload json report".split()
    ),
    "nccl_calls": tuple(
        "start end thread process name bytes communicator ranks rank peer root reduction report".split()
    ),
    "graph_nodes": tuple("time thread process node original report".split()),
    "overhead": tuple("start end thread process correlation name report".split()),
    "system_calls": tuple("start end thread process name report".split()),
    "context_switches": tuple("time cpu thread process on_cpu report".split()),
    "gpu_metrics": tuple("time gpu metric value report".split()),
    "diagnostics": tuple("time process source severity name report".split()),
    "threads": tuple("thread process name report".split()),
    "processes": tuple("process name report".split()),
    "devices": ("process", "device", "gpu", "name", *DEVICE_FACTS, "report"),
}


def frame(
    kind: str, columns: Mapping[str, Ints | pd.Categorical | NDArray[np.bool_]]
) -> pd.DataFrame:
    """Return the frame of this kind; integer columns that are not given are -1 in every row."""
    rows = len(next(iter(columns.values()))) if columns else 0
    data = {c: columns[c] if c in columns else _missing(c, rows) for c in FRAMES[kind]}
    table = pd.DataFrame(data, copy=False)
    if kind in KINDS and tuple(table["kind"].cat.categories) != KINDS[kind]:
        return table.assign(kind=_as_kinds(table["kind"], KINDS[kind]))
    return table


def _as_kinds(column: pd.Series, kinds: tuple[str, ...]) -> pd.Categorical:
    places = np.array([kinds.index(name) for name in column.cat.categories] + [MISSING])
    return names(places[codes(column)], kinds)


def pid(process: Process) -> Process:
    """Return the id of a process as the operating system has it, of one globalPid or of an array of them."""
    return process >> PID_SHIFT & ID_BITS


def is_kind(table: pd.DataFrame, *kinds: str) -> NDArray[np.bool_]:
    """Return a mask of the rows that are of one of these kinds."""
    kind = table["kind"].cat
    mask = np.array([*(name in kinds for name in kind.categories), False])
    return mask[kind.codes.to_numpy()]


def names(codes: NDArray[np.signedinteger], categories: Sequence[str]) -> pd.Categorical:
    """Return a categorical from a code per row (-1 for none) and the distinct names."""
    dtype = pd.CategoricalDtype(pd.Index(list(categories), dtype=object))
    return pd.Categorical.from_codes(codes, dtype=dtype)


def names_of(texts: Sequence[str]) -> pd.Categorical:
    """Return a categorical from a text per row."""
    row_codes, distinct = pd.factorize(np.array(texts, dtype=object))
    return names(row_codes.astype(np.int64), list(distinct))


def codes(column: pd.Series) -> Ints:
    """Return the code of each row of a categorical, -1 where there is none."""
    result: Ints = column.array.codes.astype(
        np.int64
    )  # a Series like `cat.codes` is slow to create
    return result


def ints(table: pd.DataFrame, column: str) -> Ints:
    """Return an integer column as an array, without a copy."""
    result: Ints = table[column].to_numpy()
    return result


def pick(column: Ints, rows: Ints) -> Ints:
    """Return a column's values at ascending rows; the column itself if these are all rows."""
    return column if len(rows) == len(column) else column[rows]


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames of one kind; categoricals stay categoricals."""
    if len(frames) == 1:
        return frames[0]
    columns = {c: _concat([f[c] for f in frames]) for c in frames[0].columns}
    return pd.DataFrame(columns, copy=False)


def _concat(parts: list[pd.Series]) -> pd.Categorical | NDArray[np.generic]:
    if isinstance(parts[0].dtype, pd.CategoricalDtype):
        return _concat_names(parts)
    return np.concatenate([p.to_numpy() for p in parts])


def _concat_names(parts: list[pd.Series]) -> pd.Categorical:
    """Concatenate categoricals; equal names become one category."""
    categories_of_parts = [p.cat.categories for p in parts]
    first = np.cumsum([0, *map(len, categories_of_parts)]).tolist()
    shifted = [
        np.where(part_codes == MISSING, MISSING, part_codes + offset)
        for part_codes, offset in zip(map(codes, parts), first, strict=False)
    ]
    categories = [name for part_names in categories_of_parts for name in part_names]
    merged, distinct = pd.factorize(np.array(categories, dtype=object))
    return names(np.append(merged, MISSING)[np.concatenate(shifted)], list(distinct))


def key_codes(*tables: Sequence[Ints]) -> list[Ints]:
    """Return codes of the keys of several tables, equal for equal keys in any of the tables.

    Each table is a sequence of columns; a key is the tuple of the values of a row.
    """
    rows = [len(table[0]) for table in tables]
    codes = np.zeros(sum(rows), np.int64)
    columns = [parts for parts in zip(*tables, strict=True) if not _is_constant(parts)]
    for i, parts in enumerate(columns):
        column_codes, values = pd.factorize(np.concatenate(parts))
        codes = pd.factorize(codes * len(values) + column_codes)[0] if i else column_codes
    return np.split(codes.astype(np.int64, copy=False), np.cumsum(rows)[:-1])


def _is_constant(columns: Sequence[Ints]) -> bool:
    """Return whether all columns hold one value in every row."""
    filled = [c for c in columns if len(c)]
    return all(
        c[0] == c[-1] == filled[0][0] and (c.strides == (0,) or (c == c[0]).all()) for c in filled
    )


def _missing(column: str, rows: int) -> Ints | pd.Categorical | NDArray[np.bool_]:
    if column in NAMES:
        return names(np.full(rows, MISSING, np.int64), [])
    if column in FLAGS:
        return np.zeros(rows, bool)
    value = 0 if column == "report" else MISSING
    return np.broadcast_to(np.int64(value), (rows,))
