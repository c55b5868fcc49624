"""The demangled names of what ran: two kernels of one short name are told apart by them."""

from __future__ import annotations

import numpy as np

from bridge.analyze.groups import counts, sums
from bridge.join.attributed import Attributed
from bridge.join.order import Flags, Ints, by, number
from importers import frames

LONGEST = 1_000  # letters: templates of templates would make the page large


def fuller(joined: Attributed, group: Ints, names: Ints, own: Flags) -> list[str]:
    """Return per group of activities (``group``, one per activity) the full name with most time in it.

    How many more there are stands after it. '' where it is the group's name itself (``names``), is not
    known, or where the group is not of one name (not in ``own``).
    """
    column = joined.report.activities["full_name"]
    pair, first = number(group, frames.codes(column))
    of, code = group[first], frames.codes(column)[first]
    order = by(of, -sums(pair, joined.duration, len(first)), code)
    _, top = np.unique(of[order], return_index=True)  # groups are numbered without gaps
    more = counts(of, len(names)) - 1
    texts = [*column.cat.categories, ""]
    chosen = (texts[c] for c in code[order][top].tolist())
    told = zip(names.tolist(), chosen, more.tolist(), own.tolist(), strict=True)
    return [_told(name, full, others) if is_own else "" for name, full, others, is_own in told]


def _told(name: str, full: str, others: int) -> str:
    if full in {"", name}:
        return ""
    cut = full if len(full) <= LONGEST else f"{full[:LONGEST]}…"
    return f"{cut} (and {others} more)" if others else cut
