"""Kernels, copies, fills and graph launches of an export as the frame `activities`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns
from importers.nsys import schema
from importers.nsys.names import Strings
from importers.texts import Ints


def activities(
    read: dict[str, Columns], strings: Strings, callers: Ints | None = None
) -> pd.DataFrame:
    """Return everything that ran on a device: kernels, then copies, fills and whole graphs.

    ``callers`` are the processes that there are, without them those of the API calls that were read.
    """
    parts = [
        (frames.KERNEL, _kernels(ended(_ints(read["kernels"])), strings)),
        (frames.COPY, _copies(ended(_ints(read["copies"])))),
        (frames.COPY, _all_named(ended(_ints(read["decompressions"])), schema.DECOMPRESSION)),
        (frames.FILL, _all_named(ended(_ints(read["fills"])), schema.FILL)),
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
