"""Many reports: each is loaded, joined and aggregated in a worker, and only aggregates come back: docs/fleet.md.

The invariant: what is said of all of them together is, byte for byte, what one process says that loads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.scale.combined import Together
    from bridge.scale.task import Broken

__all__ = ["load"]


def load(
    *paths: str | Path,
    by: str | Sequence[str] = ("op", "op-kernel", "kernel", "memcpy"),
    workers: int | None = None,
    scheduler: str | None = None,
    broken: Callable[[Broken], None] | None = None,
    **how: Any,
) -> Together:
    """Aggregate reports (files, folders, globs) in processes of their own; of what is given back, ``by`` can be asked.

    ``workers`` is how many processes, one per core without; ``scheduler`` the address of a Dask cluster whose
    workers see the files by the same path. ``how`` are the fields of `bridge.join.choices.Choices`. A report that
    cannot be read is handed to ``broken``, and without it raises `importers.ReportError`.
    """
    from bridge.scale.loading import load as loaded  # light until it is used

    tables = (by,) if isinstance(by, str) else tuple(by)
    return loaded(paths, tables, workers, scheduler, broken, how)
