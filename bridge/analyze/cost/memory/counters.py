"""Find the counters that sample memory: those of the domain ``memory``, or with such a name."""

from __future__ import annotations

import json
import re

import numpy as np

from bridge.analyze.core.groups import Floats, texts
from bridge.analyze.core.table import Table
from bridge.importers.frames import COUNTER
from bridge.join.arrays import Flags, Ints
from bridge.join.attributed import AttributedCapture

DOMAIN = "memory"
MEMORY_NAME = re.compile(r"memory|allocated|reserved|resident", re.IGNORECASE)


def samples(attributed: AttributedCapture) -> Table:
    """Return all samples of memory: name, report, process, time in ns, value in bytes."""
    marks, rows = attributed.capture.marks, np.flatnonzero(is_memory_sample(attributed))
    names = [name.removeprefix(COUNTER) for name in marks.name.texts]
    return Table(
        {
            "name": texts(names)[marks.name.codes[rows]],
            **{c: marks[c][rows] for c in ("report", "process", "time")},
            "value": sample_values(attributed, rows),
        }
    )


def is_memory_sample(attributed: AttributedCapture) -> Flags:
    """Return which marks are samples of memory."""
    marks = attributed.capture.marks
    is_counter = marks.name.matching(lambda name: name.startswith(COUNTER))
    return is_counter & (marks.name.matching(MEMORY_NAME.search) | marks.domain_name.among(DOMAIN))


def sample_values(attributed: AttributedCapture, rows: Ints) -> Floats:
    """Return the value of each sample: an integer payload, or a number as JSON."""
    marks = attributed.capture.marks
    fractional = marks.json[rows].per_text(_number, np.nan)
    return np.where(np.isnan(fractional), marks.payload[rows], fractional)


def _number(text: str) -> float:
    """Return a finite number in JSON, else NaN."""
    try:
        value = float(json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return np.nan
    return value if np.isfinite(value) else np.nan
