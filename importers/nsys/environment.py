"""What a capture says of where it was taken: its host, and which of several processes it is of.

The invariant: of the environment that exports hold, the places of processes alone are kept. All else may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from importers.columns import Columns, texts_of
from importers.nsys import schema

# What launchers set, as `bridge.recording.header` has them: the first that is a number counts.
PLACES: Mapping[str, tuple[str, ...]] = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
}
LONGEST = 9  # digits of a number that is a place
KEY = "environment"


def said(read: Mapping[str, Columns]) -> dict[str, Any]:
    """Return ``host``, and as ``environment`` the places, of what an export says: nothing where its parts disagree."""
    system, capture = _rows(read["system"]), _rows(read["capture"])
    hosts = {value for name, value in system if name == schema.HOST}
    whole = {value for name, value in system if name == schema.ENVIRONMENT}
    own = [value for name, value in capture if name == schema.OF_PROGRAM]
    of_tool = whole.pop().split("\0") if len(whole) == 1 else []
    found = places(of_tool) | places(own)
    return ({"host": hosts.pop()} if len(hosts) == 1 else {}) | ({KEY: found} if found else {})


def places(entries: Iterable[str]) -> dict[str, int]:
    """Return the place of a process among several by entries of its environment, ``RANK=3`` or ``RANK="3"``."""
    wanted = {variable for names in PLACES.values() for variable in names}
    parts = (entry.partition("=") for entry in entries)
    values = {name: value.strip('"') for name, _, value in parts if name in wanted}
    first = {
        place: next((values[v] for v in names if _is_number(values.get(v, ""))), None)
        for place, names in PLACES.items()
    }
    return {place: int(value) for place, value in first.items() if value is not None}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST


def _rows(columns: Columns) -> list[tuple[str, str]]:
    pairs = (texts_of(columns, column).decode() for column in ("name", "value"))
    return list(zip(*pairs, strict=True))
