"""The tables there are (``--by``), and what is known of each without loading anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A table: sorted by these columns, largest first.

    ``directed`` ones can count one direction alone; ``details`` are columns of a report that are read
    only when asked for; ``nothing`` is what to say where there is no row.
    """

    sorted_by: tuple[str, ...]
    directed: bool = False
    details: tuple[str, ...] = ()
    nothing: str = ""


VIEWS = {
    "op": View(("gpu_self_ns", "gpu_total_ns", "cpu_total_ns"), directed=True),
    "op-kernel": View(("total_ns",), directed=True),
    "kernel": View(("total_ns",), directed=True),
    "copy": View(("total_ns",), directed=True, nothing="no copies or fills in the report"),
    "range": View(("gpu_busy_ns", "duration_ns"), directed=True),
    "module": View(("gpu_self_ns", "gpu_total_ns"), details=("category",)),
    "forward-op": View(("gpu_self_ns",)),
    "phase": View(("gpu_ns", "wall_ns"), nothing="no start/end ranges in the report"),
    "wait": View(("total_ns",), details=("waits",), nothing="no synchronisations in the report"),
}
DIRECTED = tuple(name for name, view in VIEWS.items() if view.directed)
