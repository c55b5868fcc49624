"""Many reports: workers load, join and aggregate one each, and only aggregates come back: docs/fleet.md.

The invariant: every table is, byte for byte, the table of one process that loads all reports.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from bridge.report import AttributionFields
    from bridge.scale.combined import CombinedReport
    from bridge.scale.task import FailedTask

__all__ = ["load"]


def load(
    *paths: str | Path,
    by: str | Sequence[str] = ("op", "op-kernel", "kernel", "memcpy"),
    workers: int | None = None,
    scheduler: str | None = None,
    broken: Callable[[FailedTask], None] | None = None,
    **options: Unpack[AttributionFields],
) -> CombinedReport:
    """Aggregate reports in processes of their own, and return one report that answers for all.

    ``paths`` are files, folders, or patterns with ``*``. ``by`` are the tables that the result can
    be asked for. ``workers`` is the number of processes, by default one per core; ``scheduler`` the
    address of a Dask cluster whose workers see the files by the same path. ``options`` are those of
    `bridge.load`. A report that cannot be read is passed to
    ``broken``; without ``broken`` it raises `bridge.importers.ReportError`.
    """
    from bridge.report import attribution_options
    from bridge.scale.loading import Workers  # this module is light until it is used
    from bridge.scale.loading import load as loaded

    tables = (by,) if isinstance(by, str) else tuple(by)
    where = Workers(workers or os.cpu_count() or 1, scheduler)
    return loaded(
        paths, tables, workers=where, options=attribution_options(**options), broken=broken
    )
