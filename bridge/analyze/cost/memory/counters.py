"""Find the counters that sample memory: those of the domain ``memory``, or with such a name."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd

from bridge.analyze.core.groups import Floats, texts
from bridge.importers import frames
from bridge.importers.frames import COUNTER
from bridge.join.arrays import Flags, Ints
from bridge.join.attributed import AttributedCapture

DOMAIN = "memory"
MEMORY_NAME = re.compile(r"memory|allocated|reserved|resident", re.IGNORECASE)


def samples(attributed: AttributedCapture) -> pd.DataFrame:
    """Return all samples of memory: name, report, process, time in ns, value in bytes."""
    marks, rows = attributed.capture.marks, np.flatnonzero(is_memory_sample(attributed))
    names = [name.removeprefix(COUNTER) for name in marks["name"].cat.categories]
    return pd.DataFrame(
        {
            "name": texts(names)[frames.codes(marks["name"])[rows]],
            **{c: frames.ints(marks, c)[rows] for c in ("report", "process", "time")},
            "value": sample_values(attributed, rows),
        }
    )


def is_memory_sample(attributed: AttributedCapture) -> Flags:
    """Return which marks are samples of memory."""
    marks = attributed.capture.marks
    names = list(marks["name"].cat.categories)
    is_counter = np.array([*(n.startswith(COUNTER) for n in names), False])
    has_name = np.array([*(MEMORY_NAME.search(n) is not None for n in names), False])
    has_domain = np.array([*(n == DOMAIN for n in marks["domain_name"].cat.categories), False])
    name, domain = frames.codes(marks["name"]), frames.codes(marks["domain_name"])
    result: Flags = is_counter[name] & (has_name[name] | has_domain[domain])
    return result


def sample_values(attributed: AttributedCapture, rows: Ints) -> Floats:
    """Return the value of each sample: an integer payload, or a number as JSON."""
    marks = attributed.capture.marks
    value_of_text = np.array([*map(_number, marks["json"].cat.categories), np.nan])
    fractional = value_of_text[frames.codes(marks["json"])[rows]]
    return np.where(np.isnan(fractional), frames.ints(marks, "payload")[rows], fractional)


def _number(text: str) -> float:
    """Return a finite number in JSON, else NaN."""
    try:
        value = float(json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return np.nan
    return value if np.isfinite(value) else np.nan
