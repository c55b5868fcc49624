"""The op of every range: its name without what changes per call, or its whole text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bridge.join import labels
from bridge.join.order import NONE, Ints
from importers import frames
from importers.report import Report


def ops(report: Report, rules: Sequence[labels.Rule]) -> tuple[Sequence[str], Ints]:
    """Return the ops, and the code of each range's; the user's rules come first."""
    column = report.ranges["name"]
    codes, names = pd.factorize(np.array(labels.ops_of(list(column.cat.categories), rules), object))
    return list(names), _through(codes, frames.codes(column))


def raw(report: Report) -> tuple[Sequence[str], Ints]:
    """Return the whole texts, as ``domain:text`` where the domain has a name, and the code of each range's."""
    text, texts = report.texts.factorize()
    domain = report.ranges["domain_name"]
    domains = list(domain.cat.categories)
    text = _through(text, frames.ints(report.ranges, "text"))
    codes, distinct = pd.factorize(text * max(1, len(domains)) + frames.codes(domain))
    pairs = [divmod(pair, max(1, len(domains))) for pair in distinct.tolist()]
    named, names = pd.factorize(
        np.array([labels.prefixed(domains[d], texts[t]) for t, d in pairs], object)
    )
    return list(names), _through(named, codes)


def _through(values: Ints, codes: Ints) -> Ints:
    """Return values[code] per row, NONE for no code."""
    return np.append(values, NONE)[codes].astype(np.int64)
