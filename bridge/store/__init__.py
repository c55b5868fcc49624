"""Runs kept in one plain SQLite database, made for people to query; docs/store.md lists every table.

A run counts from its row in ``runs``, which is written last; whatever an import that died left
behind is taken out before the next one. The file is never held open by two SQLite libraries at once:
closing one would drop the other's locks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bridge.store.aggregates import Kept, kept
from bridge.store.runs import Run, check_name, described, find, listed, named, remove
from bridge.store.tables import StoreError
from importers.identity import identity, known_by, without_ncu

if TYPE_CHECKING:
    from bridge.store.aggregates import load_aggregates, save_aggregates
    from bridge.store.loading import load
    from bridge.store.saving import save

__all__ = [
    "Kept",
    "Run",
    "StoreError",
    "check_name",
    "described",
    "find",
    "identity",
    "kept",
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

_LATER = {  # what needs the analysis, which a run that is only shown does not
    **dict.fromkeys(("load_aggregates", "save_aggregates"), "aggregates"),
    "load": "loading",
    "save": "saving",
}


def __getattr__(name: str) -> Any:
    """Load the rest at its first use."""
    if name not in _LATER:
        raise AttributeError(f"module 'bridge.store' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"bridge.store.{_LATER[name]}"), name)
    return found
