"""Kernels, memcpys, memsets and graph launches of an export as the frame `activities`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, ints_of, texts_of
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.annotations import Strings, distinct
from importers.texts import Ints, unique_names

# -- Synchronisations and event records of an export as the frame `waits`


UNKNOWN, EVENT_RECORD = (frames.WAIT_KINDS.index(kind) for kind in ("unknown", "event_record"))


def waits(read: dict[str, Columns], launches: pd.DataFrame) -> pd.DataFrame:
    """Return synchronisations, then event records, which have the times of their calls."""
    callers = frames.ints(launches, "process")
    parts = [_placed(read[name], callers) for name in ("syncs", "events")]
    found = [_syncs(parts[0]), _events(parts[1], launches)]
    return frames.concat([f for f in found if len(f)] or found[:1])


def _placed(columns: Columns, callers: Ints) -> dict[str, Ints]:
    ints = {name: ints_of(columns, name) for name in columns}
    return ints | {"process": only_process(ints["process"], callers)}


def _syncs(columns: dict[str, Ints]) -> pd.DataFrame:
    kind = columns["kind"]
    known = np.where((kind >= 0) & (kind < EVENT_RECORD), kind, UNKNOWN)
    return _frame(ended(columns), known)


def _events(columns: dict[str, Ints], launches: pd.DataFrame) -> pd.DataFrame:
    row = calls((columns["process"], columns["correlation"]), launches)
    times = {c: np.append(frames.ints(launches, c), frames.MISSING)[row] for c in ("start", "end")}
    return _frame(columns | times, np.full(len(row), EVENT_RECORD))


def _frame(columns: dict[str, Ints], kinds: Ints) -> pd.DataFrame:
    return frames.frame("waits", {**columns, "kind": frames.names(kinds, frames.WAIT_KINDS)})


def calls(keys: tuple[Ints, Ints], launches: pd.DataFrame) -> Ints:
    """Return the row of each key's call, the earliest of several, or -1; ids from 1 on are calls."""
    asked = len(keys[0])
    if not asked:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(np.isin(frames.ints(launches, "correlation"), keys[1]))
    rows = rows[np.argsort(frames.ints(launches, "start")[rows], kind="stable")]
    theirs = (frames.ints(launches, c)[rows] for c in ("process", "correlation"))
    codes, firsts = distinct(tuple(np.concatenate(pair) for pair in zip(keys, theirs, strict=True)))
    first = np.full(len(firsts), len(rows))
    np.minimum.at(first, codes[asked:], np.arange(len(rows)))
    found = np.append(rows, frames.MISSING)[first[codes[:asked]]]
    return np.where(keys[1] > 0, found, frames.MISSING)


# -- Allocations and releases of an export as the frame `memory`


UNKNOWN_MEMORY = frames.MEMORY_KINDS.index("unknown")


def memory(columns: Columns, launches: pd.DataFrame) -> pd.DataFrame:
    """Return a row per allocation and release; what is neither is left out.

    Some exports give no time (0) to any of them: then it is that of the call.
    """
    ints = {name: ints_of(columns, name) for name in columns if name != "name"}
    rows = np.flatnonzero(np.isin(ints["operation"], frames.OPERATIONS))
    ints = {name: frames.pick(column, rows) for name, column in ints.items()}
    process = only_process(ints["process"], frames.ints(launches, "process"))
    call = calls((process, ints["correlation"]), launches)
    kind = ints["kind"]
    known = np.where((kind >= 0) & (kind < UNKNOWN_MEMORY), kind, UNKNOWN_MEMORY)
    texts = texts_of(columns, "name").take(rows)
    code, distinct = pd.factorize(np.array([*texts.decode(), ""], object))
    own: dict[str, Ints | pd.Categorical] = {
        "time": _times(ints["time"], call, launches),
        "thread": _at(frames.ints(launches, "thread"), call),
        "process": process,
        "kind": frames.names(known, frames.MEMORY_KINDS),
        "name": frames.names(*unique_names(code[:-1].astype(np.int64), list(distinct))),
    }
    return frames.frame("memory", {**ints, **own})


def _times(time: Ints, call: Ints, launches: pd.DataFrame) -> Ints:
    """Return the times; of those without one that of the call."""
    called = _at(frames.ints(launches, "start"), call)
    return np.where((time <= 0) & (called != MISSING), called, time)


def _at(column: Ints, rows: Ints) -> Ints:
    return np.append(column, MISSING)[rows]


# -- Kernels, memcpys, memsets and graph launches of an export as the frame `activities`


def activities(
    read: dict[str, Columns], strings: Strings, callers: Ints | None = None
) -> pd.DataFrame:
    """Return everything that ran on a device: kernels, then memcpys, memsets and whole graphs.

    ``callers`` are the processes that there are, without them those of the API calls that were read.
    """
    parts = [
        (frames.KERNEL, _kernels(ended(_ints(read["kernels"])), strings)),
        (frames.MEMCPY, _copies(ended(_ints(read["copies"])))),
        (frames.MEMCPY, _all_named(ended(_ints(read["decompressions"])), schema.DECOMPRESSION)),
        (frames.MEMSET, _all_named(ended(_ints(read["fills"])), schema.FILL)),
        (frames.GRAPH, _graphs(ended(_ints(read["graphs"])))),
    ]
    found = [_kind(columns, kind) for kind, columns in parts]
    table = frames.concat([f for f in found if len(f)] or found[:1])
    if callers is None:
        callers = _ints(read["launches"])["thread"] & ~schema.THREAD_BITS
    return table.assign(process=only_process(frames.ints(table, "process"), callers))


def _kernels(columns: dict[str, Ints], strings: Strings) -> dict[str, Ints | pd.Categorical]:
    named = {c: strings.column(columns[c]) for c in ("name", "full_name", "mangled")}
    return {**columns, **named}


def _copies(columns: dict[str, Ints]) -> dict[str, Ints | pd.Categorical]:
    kinds, codes = np.unique(columns["copy_kind"], return_inverse=True)
    labels = [schema.COPY_KINDS.get(int(k), f"kind {k}") for k in kinds]
    return columns | _same_names(codes, [f"[CUDA memcpy {label}]" for label in labels])


def _all_named(columns: dict[str, Ints], name: str) -> dict[str, Ints | pd.Categorical]:
    return columns | _same_names(np.zeros(len(columns["start"]), np.int64), [name])


def _graphs(columns: dict[str, Ints]) -> dict[str, Ints | pd.Categorical]:
    ids, codes = np.unique(columns["graph"], return_inverse=True)
    return columns | _same_names(codes, [schema.GRAPH.format(i) for i in ids])


def _same_names(codes: Ints, names: list[str]) -> dict[str, pd.Categorical]:
    """What is no kernel has one name, however it is asked for."""
    return dict.fromkeys(("name", "full_name", "mangled"), frames.names(codes, names))


def _kind(columns: dict[str, Ints | pd.Categorical], kind: str) -> pd.DataFrame:
    codes = np.full(len(columns["start"]), frames.ACTIVITY_KINDS.index(kind), np.int64)
    return frames.frame(
        "activities", columns | {"kind": frames.names(codes, frames.ACTIVITY_KINDS)}
    )


def only_process(process: Ints, callers: Ints) -> Ints:
    """Give a record without a process that of all others and of all calls, if that is one."""
    unknown = process == frames.MISSING
    if not unknown.any():
        return process
    known = np.unique(np.concatenate((process[~unknown], callers)))
    return np.where(unknown, known[0], process) if len(known) == 1 else process


def ended(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Let what has no end end 1 ns before it starts: an invalid time, and no sentinel to add up."""
    start, end = columns["start"], columns["end"]
    endless = end == schema.NO_END
    return columns | {"end": np.where(endless, start - 1, end)} if endless.any() else columns


def _ints(columns: Columns) -> dict[str, Ints]:
    return {name: c for name, c in columns.items() if isinstance(c, np.ndarray)}
