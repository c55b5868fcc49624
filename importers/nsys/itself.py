"""What the profiler says of itself: its overhead, its diagnostics, and what else it recorded, at a cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, Database, ints_of, texts_of
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.annotations import pooled
from importers.nsys.devices import ended
from importers.nsys.names import Strings
from importers.nsys.table import Present
from importers.texts import Ints, unique_names


def overhead(columns: Columns, strings: Strings) -> pd.DataFrame:
    """Return a row per time in which the profiler itself worked on a thread."""
    ints = ended({name: ints_of(columns, name) for name in columns})
    return frames.frame(
        "overhead",
        {**ints, "process": _process(ints["thread"]), "name": strings.column(ints["name"])},
    )


def diagnostics(columns: Columns, strings: Strings) -> pd.DataFrame:
    """Return a row per message of the profiler; one of no known severity is of severity 0."""
    ints = {name: ints_of(columns, name) for name in columns if name != "text"}
    severity = ints["severity"]
    known = (severity > 0) & (severity < len(frames.SEVERITIES))
    pool, text = pooled(texts_of(columns, "text"), ints["text_id"], strings)
    name = frames.names(*unique_names(text, [_line(one) for one in pool.decode()]))
    return frames.frame(
        "diagnostics", {**ints, "severity": np.where(known, severity, 0), "name": name}
    )


def beside(database: Database, tables: Mapping[str, Present]) -> dict[str, int]:
    """Return how many rows there are of what else was recorded, by what it is; what was not is left out."""
    there = {what: of.name for what, of in schema.BESIDE.items() if of.name in tables}
    bounds = database.bounds(there.values())
    found = {what: bounds[name][1] - bounds[name][0] + 1 for what, name in there.items()}
    return {what: rows for what, rows in found.items() if rows > 0}


def _process(thread: Ints) -> Ints:
    return np.where(thread == MISSING, MISSING, thread & ~schema.THREAD_BITS)


def _line(text: str) -> str:
    """Return a message without the tabs and line ends that some have."""
    return " ".join(text.split())
