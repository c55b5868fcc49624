"""Runs kept in one plain SQLite database, made for people to query; docs/store.md lists every table.

A run counts from its row in ``runs``, which is written last; whatever an import that died left
behind is taken out before the next one. The file is never held open by two SQLite libraries at once:
closing one would drop the other's locks.
"""

from bridge.store.aggregated import known_by, load_aggregates, save_aggregates
from bridge.store.identity import identity, without_ncu
from bridge.store.load import load
from bridge.store.runs import Run, check_name, described, find, listed, named, remove
from bridge.store.save import save
from bridge.store.tables import StoreError

__all__ = [
    "Run",
    "StoreError",
    "check_name",
    "described",
    "find",
    "identity",
    "known_by",
    "listed",
    "load",
    "load_aggregates",
    "named",
    "remove",
    "save",
    "save_aggregates",
    "without_ncu",
]
