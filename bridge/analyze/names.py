"""What activities are called."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.join.attributed import Attributed
from bridge.join.order import Ints
from importers import frames

KERNEL_NAMES = {"short": "name", "demangled": "full_name", "mangled": "mangled"}


def named(joined: Attributed, column: str, rows: Ints) -> tuple[Ints, list[str]]:
    """Return a code per row and the names in use."""
    column_of = joined.report.activities[column]
    codes, used = pd.factorize(frames.codes(column_of)[rows])
    categories = column_of.cat.categories
    return codes.astype(np.int64), [categories[c] for c in used.tolist()]
