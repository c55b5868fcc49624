"""Runs in one plain SQLite database that people can query; docs/store.md lists every table.

The row in ``runs`` is written last: without it, rows of a run do not count, and the next import
deletes them. The file is never open in two SQLite libraries of one process at once: closing one
would drop the locks of the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.importers.identity import aggregates_identity, identity, without_ncu
    from bridge.store.aggregates import (
        StoredReport,
        load_aggregates,
        load_stored_report,
        save_aggregates,
    )
    from bridge.store.checksums import check_run, refusing_damage
    from bridge.store.loading import load
    from bridge.store.runs import (
        HostTime,
        Run,
        check_label,
        check_name,
        find_run,
        get_run,
        host_times,
        label_run,
        list_runs,
        name_run,
        remove_run,
        run_numbers,
    )
    from bridge.store.saving import save
    from bridge.store.tables import StoreError

__all__ = [
    "HostTime",
    "Run",
    "StoreError",
    "StoredReport",
    "aggregates_identity",
    "check_label",
    "check_name",
    "check_run",
    "find_run",
    "get_run",
    "host_times",
    "identity",
    "label_run",
    "list_runs",
    "load",
    "load_aggregates",
    "load_stored_report",
    "name_run",
    "refusing_damage",
    "remove_run",
    "run_numbers",
    "save",
    "save_aggregates",
    "without_ncu",
]

_AGGREGATES = ("StoredReport", "load_aggregates", "load_stored_report", "save_aggregates")
_RUNS = (
    "HostTime",
    "Run",
    "check_label",
    "check_name",
    "find_run",
    "get_run",
    "host_times",
    "label_run",
    "list_runs",
    "name_run",
    "remove_run",
    "run_numbers",
)
_IDENTITIES = ("aggregates_identity", "identity", "without_ncu")
_MODULES = {  # by name: listing runs needs no analysis, completing their names not even pandas
    **dict.fromkeys(_AGGREGATES, "bridge.store.aggregates"),
    **dict.fromkeys(_RUNS, "bridge.store.runs"),
    **dict.fromkeys(_IDENTITIES, "bridge.importers.identity"),
    "StoreError": "bridge.store.tables",
    **dict.fromkeys(("check_run", "refusing_damage"), "bridge.store.checksums"),
    "load": "bridge.store.loading",
    "save": "bridge.store.saving",
}


def __getattr__(name: str) -> Any:
    """Load a name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'bridge.store' has no attribute {name!r}")
    globals()[name] = result = getattr(import_module(_MODULES[name]), name)
    return result
