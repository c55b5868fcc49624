"""The host or the GPU alone: what is left of a capture if only one side was requested.

Readers of large formats do not read the tables of the other side at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bridge.importers import frames
from bridge.importers.call_chains import CallChains
from bridge.importers.capture import Capture
from bridge.importers.errors import NothingRecorded
from bridge.importers.ncu.metrics import Metrics
from bridge.importers.nsys.tables import GPU_SIDE, HOST_SIDE
from bridge.importers.texts import Texts

# The frames that describe one side, by the side that is read without them.
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    HOST_SIDE: ("activities", "waits", "cuda_streams", "memory", "devices", "gpu_metrics", "graph_nodes"),
    GPU_SIDE: (
        "ranges", "launches", "marks", "graph_nodes", "overhead", "system_calls", "context_switches",
        "nccl_calls",
    ),
}  # fmt: skip


def select_side(capture: Capture, side: str) -> Capture:
    """Return the rows of one side of a capture. Raises NothingRecorded if it has none."""
    if not side:
        return capture
    empty = {kind: frames.FRAMES[kind]() for kind in LEFT_OUT[side]}
    parts = (
        {"metrics": Metrics()}
        if side == HOST_SIDE
        else {"chains": CallChains(), "texts": Texts.of([])}
    )
    result = replace(capture, **empty, **parts)  # type: ignore[arg-type]
    if not (len(result.ranges) + len(result.launches) + len(result.activities)):
        raise NothingRecorded(
            f"{', '.join(capture.source)}: nothing of the {side} in it; leave out --only"
        )
    return result
