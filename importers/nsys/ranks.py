"""The host and the rank of the recorded process, as an export's tables tell them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bridge.importers.nsys import schema
from bridge.importers.sqlite_columns import Columns, texts_of

# Variables that launchers set, as in `bridge.annotate.recording.writer`; the first number counts.
RANK_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "rank": (
        "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK",
        "HOROVOD_RANK", "SLURM_PROCID",
    ),
    "local_rank": (
        "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "SLURM_LOCALID",
    ),
    "world_size": (
        "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "HOROVOD_SIZE",
        "SLURM_NTASKS",
    ),
}  # fmt: skip
MAX_RANK_DIGITS = 9  # digits of a rank
ENVIRONMENT_KEY = "environment"


def host_and_ranks(read: Mapping[str, Columns]) -> dict[str, Any]:
    """Return ``host``, and as ``environment`` the rank of the process, from an export's tables.

    Either is left out where the tables contradict each other.
    """
    system, capture = name_value_pairs(read["system"]), name_value_pairs(read["capture"])
    hosts = {value for name, value in system if name == schema.HOST}
    environments = {value for name, value in system if name == schema.ENVIRONMENT}
    program = [value for name, value in capture if name == schema.PROGRAM_ENVIRONMENT]
    environment = environments.pop().split("\0") if len(environments) == 1 else []
    ranks = environment_ranks(environment) | environment_ranks(program)
    return ({"host": hosts.pop()} if len(hosts) == 1 else {}) | (
        {ENVIRONMENT_KEY: ranks} if ranks else {}
    )


def environment_ranks(entries: Iterable[str]) -> dict[str, int]:
    """Return the ranks of a process from its environment, ``RANK=3`` or ``RANK="3"``."""
    variables = {variable for names in RANK_VARIABLES.values() for variable in names}
    parts = (entry.partition("=") for entry in entries)
    values = {name: value.strip('"') for name, _, value in parts if name in variables}
    numbers = {
        rank: next((values[v] for v in names if _is_number(values.get(v, ""))), None)
        for rank, names in RANK_VARIABLES.items()
    }
    return {rank: int(value) for rank, value in numbers.items() if value is not None}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_RANK_DIGITS


def name_value_pairs(columns: Columns) -> list[tuple[str, str]]:
    """Return the rows of a table of names and values."""
    pairs = (texts_of(columns, column).decode() for column in ("name", "value"))
    return list(zip(*pairs, strict=True))
