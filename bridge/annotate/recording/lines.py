"""Lines of a recording: JSON objects, of which the first tells the process and its clocks.

The format is in docs/recordings.md.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

# -- Encoding of a line as JSON


def encoded(line: Mapping[str, Any], default: Callable[[Any], Any] | None = repr) -> bytes:
    """Return a line as JSON, without a line end.

    Raises TypeError for an object that is not JSON, unless ``default`` converts it.
    """
    try:
        text = _json(line, default)
    except ValueError:  # a NaN or infinity, replaced only if there is one
        text = _json(_finite(line), default)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two backslashes, because in JSON one would start an escape of the surrogate.
        parts = (c if c.isascii() else _escaped(c) for c in text)
        return "".join(parts).encode()


def _json(line: Any, default: Callable[[Any], Any] | None) -> str:
    import json  # takes 5 ms, and most programs write nothing

    return json.dumps(
        line, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    )


def _escaped(character: str) -> str:
    return character.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 (only NaN differs from itself)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# -- The header: process and clocks


FORMAT = "bridge.recording/1"
# Variables in which launchers (torchrun, mpirun, srun) give the rank of a process.
RANKS = {
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


def header() -> dict[str, Any]:
    """Return the first line: the process, and its clocks (epoch and monotonic) in ns."""
    return {
        "format": FORMAT,
        "trace_id": os.urandom(16).hex(),  # as in W3C's trace context
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "epoch_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
        **ranks(os.environ),
    }


def program() -> dict[str, str]:
    """Return the name of the program, which another one may have started in this process."""
    argv = getattr(sys, "argv", None)  # the program may have changed it
    return {"program": argv[0].rpartition("/")[2] if argv and type(argv[0]) is str else ""}


def ranks(environ: Mapping[str, str]) -> dict[str, int]:
    """Return rank, local rank and world size of this process, as far as a launcher set them."""
    result = {
        name: next((environ[v] for v in variables if environ.get(v, "").isdecimal()), None)
        for name, variables in RANKS.items()
    }
    return {name: int(value) for name, value in result.items() if value is not None}
