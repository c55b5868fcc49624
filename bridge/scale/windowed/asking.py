"""Which tables are made of windows: those of which no row takes a look at all that ran."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.analyze.breakdown import ACTIVITIES, CALLS, RANGES
from bridge.analyze.tables import ROWS, Options, made_of, rows_of, wanted
from bridge.analyze.views import VIEWS, dimensions_of
from bridge.scale.asked import CORES, KEPT, Asked, asked, needed

WHOLE = frozenset(["module", "step"])  # dimensions that are found out over all of a report
COLUMNS = {
    RANGES: {*KEPT[RANGES], *CORES},
    CALLS: {*KEPT[CALLS]},
    ACTIVITIES: {*KEPT[ACTIVITIES], *CORES},
}


def why_not(one: Asked) -> str:
    """Return what of a table takes a look at the whole report, '' for nothing."""
    names = () if one.by in VIEWS else dimensions_of(one.by)
    for name in names:
        if name in WHOLE:
            return f"rows by {name} take a look at all of it"
    lacking = [c for c in one.columns if c not in COLUMNS[rows_of(one.by)]]
    return f"{lacking[0]} takes a look at all of it" if lacking else ""


def checked(by: str, options: Options) -> Asked:
    """Return what is asked for; ValueError, in words for the user, for what there is not and what is not made of windows."""
    if by in VIEWS and by not in ROWS:
        raise ValueError(refusal(f"--by {by} takes a look at all of it"))
    if options.metrics:
        raise ValueError(refusal("--metrics takes a look at all of it"))
    for column in made_of(by, wanted(by, options)):
        try:
            needed(rows_of(by), [column])
        except ValueError as error:
            raise ValueError(refusal(f"{column} takes a look at all of it")) from error
    found = asked(by, options)
    if why := why_not(found):
        raise ValueError(refusal(why))
    return found


def refusal(why: str) -> str:
    """Return the words in which something is refused."""
    return f"larger than --memory, and {why}; without --memory it works"


def made(tables: Iterable[Asked]) -> tuple[Asked, ...]:
    """Return those of some tables that are made of windows."""
    return tuple(one for one in tables if not why_not(one))
