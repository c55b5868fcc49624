"""The first line of a recording: which process this is, and what its clocks say.

The invariant: nothing is asked of the program but what the interpreter knows already.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

FORMAT = "bridge.annotate.recording/1"
# What launchers set (torchrun, mpirun, srun): which of several processes this is.
RANKS = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
}


def header() -> dict[str, Any]:
    """Return the first line; times in ns, of the epoch and of `time.monotonic_ns` at one moment."""
    return {
        "format": FORMAT,
        "trace_id": os.urandom(16).hex(),  # as W3C's trace context has it
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "program": os.path.basename(sys.argv[0]) if sys.argv else "",  # noqa: PTH119 (no pathlib)
        "epoch_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
        **ranks(os.environ),
    }


def ranks(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the place of this process among those of a distributed program, if a launcher said it."""
    found = {
        name: next((environ[v] for v in variables if environ.get(v, "").isdecimal()), None)
        for name, variables in RANKS.items()
    }
    return {name: int(value) for name, value in found.items() if value is not None}
