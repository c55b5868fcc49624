"""What torch.distributed knows of this process: rank, world size, backend, process groups."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

MODULE = "torch.distributed"
PG_CONFIGS = "_get_all_pg_configs"  # what PyTorch's profiler calls
NCCL = "nccl"


def distributed_info() -> dict[str, Any]:
    """Return the facts by the names of PyTorch's traces; none unless groups are initialized.

    ``pg_config`` has an entry per process group: name, description, backend, size, ranks.
    """
    distributed = sys.modules.get(MODULE)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return {}
    backend = distributed.get_backend()
    result = {
        "backend": backend,
        "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(),
    }
    with suppress(Exception):  # not in this version: one has no public name
        result["pg_count"] = distributed.get_pg_count()
        all_groups = getattr(distributed.distributed_c10d, PG_CONFIGS)
        result["pg_config"] = all_groups()
    if NCCL in backend:
        with suppress(Exception):  # PyTorch without CUDA
            result["nccl_version"] = _nccl_version()
    return result


def _nccl_version() -> str:
    from torch.cuda import nccl  # only for groups of NCCL

    return ".".join(map(str, nccl.version()))
