"""What files, recordings, environments and names say of ranks, best first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bridge.join.choices import KEY
from bridge.join.order import NONE
from importers.report import Facts

OPTION, RECORDING, PROFILER, ENVIRONMENT, PROCESS, NCCL, FILE, PLACE = KNOWN_BY = (
    "--rank-from",
    "recording",
    "profiler",
    "environment",
    "process name",
    "NCCL",
    "file name",
    "place",
)
UNKNOWN = ""
OF_ALL = frozenset([OPTION, PROFILER, FILE])  # what these say is of all processes of the file
RANK = re.compile(r"(?<![a-z])rank[ _-]?(\d{1,9})(?!\d)", re.IGNORECASE)
OF_PROFILER = "PyTorch profiler"
OF_PROGRAM = "environment"  # where a report's metadata keep what a launcher set
BEGUN = "ncclCommInit"  # NCCL's ranges in which a communicator begins
NCCL_RANK, NCCL_SIZE = "Rank", "No. of ranks"


def of_file(facts: Facts, source: str) -> list[tuple[int, str]]:
    """Return what is said of a file as a whole, (rank, by what it is known), best first."""
    said = facts.metadata
    own = PROFILER if facts.product == OF_PROFILER else RECORDING
    found = (
        (_number(_part(said, KEY).get("rank")), OPTION),
        (_number(said.get("rank")), own),
        (_number(_part(said, OF_PROGRAM).get("rank")), ENVIRONMENT),
        (of_name(source), FILE),
    )
    return [(rank, known) for rank, known in found if rank != NONE]


def host_of(facts: Facts) -> str:
    """Return the host that a file is of, '' if nothing says it."""
    host = _part(facts.metadata, KEY).get("host") or facts.metadata.get("host")
    return host if isinstance(host, str) else ""


def local_rank_of(facts: Facts) -> int:
    """Return the place of the process on its host as a launcher said it, NONE if none did."""
    local = _number(facts.metadata.get("local_rank"))
    return local if local != NONE else _number(_part(facts.metadata, OF_PROGRAM).get("local_rank"))


def of_name(name: str) -> int:
    """Return the rank in a name, ``rank3`` or ``my_rank-12``, NONE if there is none."""
    found = RANK.search(name)
    return int(found[1]) if found else NONE


def of_communicators(details: Iterable[str]) -> int:
    """Return the rank that a process has in its largest communicator, by the details of NCCL's ranges; NONE if unclear."""
    ranks: dict[int, set[int]] = {}
    for text in details:
        if f'"{NCCL_RANK}"' not in text:
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and _number(found.get(NCCL_RANK)) != NONE:
            ranks.setdefault(_number(found.get(NCCL_SIZE)), set()).add(found[NCCL_RANK])
    largest = ranks[max(ranks)] if ranks else set()
    return largest.pop() if len(largest) == 1 else NONE


def _part(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = said.get(key)
    return found if isinstance(found, Mapping) else {}


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else NONE
