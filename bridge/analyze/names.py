"""What activities and files are called."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.join.arrays import Ints
from bridge.join.attributed import Attributed
from importers import frames
from importers.report import Report

KERNEL_NAMES = {"short": "name", "demangled": "full_name", "mangled": "mangled"}


def named(joined: Attributed, column: str, rows: Ints) -> tuple[Ints, list[str]]:
    """Return a code per row and the names in use."""
    column_of = joined.report.activities[column]
    codes, used = pd.factorize(frames.codes(column_of)[rows])
    categories = column_of.cat.categories
    return codes.astype(np.int64), [categories[c] for c in used.tolist()]


def files(report: Report) -> list[str]:
    """Return the names of a report's files; of several by one name each with its place."""
    several = [name for name in report.source if report.source.count(name) > 1]
    return [
        f"{name} ({place})" if name in several else name
        for place, name in enumerate(report.source, 1)
    ]
