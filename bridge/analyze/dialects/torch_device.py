"""Work on devices as PyTorch's traces have it: kernels with their geometry, copies and fills by their names there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.analyze import lanes
from bridge.analyze.dialects.torch_ids import EXTERNAL, of_activities
from bridge.analyze.occupancy import Occupancy
from bridge.analyze.timeline.parts import Column, Json, Listed, Named, Slices, drawn, named, times
from bridge.analyze.tracks import Tracks
from bridge.join.attributed import Attributed
from bridge.join.order import Ints, number
from importers import frames

KINDS = {"kernel": "kernel", "copy": "gpu_memcpy", "fill": "gpu_memset", "graph": "kernel"}
DIGITS = 3
SPACES = {"Host": "H", "Device": "D", "Array": "A", "Peer": "P"}
MEMORY = {"device_static": "Device Static", "managed_static": "Managed Static"}
OPERATION = "[CUDA memcpy "


@dataclass(frozen=True)
class Work:
    """All activities, and the same parted by kind, each with its own arguments."""

    all: Slices
    kinds: list[Slices]


def device_work(joined: Attributed, tracks: Tracks, around: Ints) -> Work:
    """Draw all activities on their streams; ``around`` is the external id of each call."""
    table = joined.report.activities
    stream = tracks.streams(table)
    start, duration = times(table)
    track = tracks.lane(stream, lanes.apart(stream, start, start + duration), "stream")
    everything = drawn("kernel", np.arange(len(table)), track, (start, duration), names_of(table))
    common = _common(joined, around)
    own = {"kernel": _of_kernels(joined), "copy": _of_copies(joined), "fill": _of_copies(joined)}
    return Work(
        everything,
        [
            replace(
                everything.only(frames.is_kind(table, word)),
                kind=kind,
                args={**common, **own.get(word, {})},
            )
            for word, kind in KINDS.items()
        ],
    )


def _common(joined: Attributed, around: Ints) -> dict[str, Column]:
    table = joined.report.activities
    external, correlation = of_activities(joined, around)
    places: Mapping[str, Column] = {
        name: frames.ints(table, name) for name in ("device", "context", "stream")
    }
    return {EXTERNAL: external, **places, "correlation": correlation}


def _of_kernels(joined: Attributed) -> dict[str, Column]:
    table, found = joined.report.activities, Occupancy.of(joined)
    grid, block = (
        Listed(tuple(frames.ints(table, f"{what}_{axis}") for axis in "xyz"))
        for what in ("grid", "block")
    )
    shared = (frames.ints(table, c) for c in ("shared_static", "shared_dynamic"))
    return {
        "queued": np.zeros(len(table), np.int64),
        "registers per thread": frames.ints(table, "registers"),
        "shared memory": sum(np.maximum(one, 0) for one in shared),  # type: ignore[dict-item]
        "blocks per SM": Json.reals(found.blocks_per_sm, DIGITS),
        "warps per SM": Json.reals(found.warps_per_sm, DIGITS),
        "grid": grid,
        "block": block,
        "est. achieved occupancy %": Json.reals(found.percent, 0),
    }


def _of_copies(joined: Attributed) -> dict[str, Column]:
    count = frames.ints(joined.report.activities, "bytes")
    there = (count >= 0) & (joined.duration > 0)
    speed = np.divide(count, joined.duration, out=np.full(len(count), np.nan), where=there)
    return {"bytes": count, "memory bandwidth (GB/s)": Json.reals(speed, DIGITS)}


def names_of(table: pd.DataFrame) -> Named:
    """Return whole names of kernels, and of copies and fills what PyTorch calls them."""
    full = named(table["full_name"])
    moves = ~frames.is_kind(table, frames.KERNEL, frames.GRAPH)
    keys = ("source_kind", "target_kind")
    code, rows = number(frames.codes(table["name"]), *(frames.ints(table, c) for c in keys))
    names = [_of_move(*one) for one in table.iloc[rows][["name", *keys]].to_numpy().tolist()]
    return Named(np.where(moves, code + len(full.names), full.codes), [*full.names, *names])


def _of_move(name: str, source: int, target: int) -> str:
    """Return ``Memcpy HtoD (Pageable -> Device)``, ``Memset (Device)``."""
    if not name.startswith(OPERATION):
        return f"Memset ({_memory(target)})" if name.startswith("[CUDA memset") else name
    way = name.removeprefix(OPERATION).rstrip("]").removeprefix("Unified ")
    short = "to".join(SPACES.get(part, part) for part in way.split("-to-"))
    return f"Memcpy {short} ({_memory(source)} -> {_memory(target)})"


def _memory(kind: int) -> str:
    name = frames.MEMORY_KINDS[kind] if 0 <= kind < len(frames.MEMORY_KINDS) else "unknown"
    return MEMORY.get(name, name.capitalize())
