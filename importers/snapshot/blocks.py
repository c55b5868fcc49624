"""What was held when the snapshot was taken: segments, which are reserved, and the blocks in them that are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from importers.kineto.numbers import integers
from importers.texts import Ints

USED = "active"  # what the states of blocks that are used begin with


@dataclass(frozen=True)
class Blocks:
    """Blocks that were used: device, address, bytes that were asked for, and frames, as they are there.

    ``reserved`` are the bytes of all segments of each device that has any.
    """

    device: Ints
    address: Ints
    bytes: Ints
    frames: list[Any]
    reserved: dict[int, int]

    @classmethod
    def of(cls, segments: Sequence[Any]) -> Blocks:
        """Read the segments."""
        whole = [segment for segment in segments if type(segment) is dict]
        device, total = (_column(whole, key) for key in ("device", "total_size"))
        device = np.maximum(device, 0)  # of one GPU it may be left out
        found = [
            block
            for number, segment in zip(device.tolist(), whole, strict=True)
            for block in _used(number, segment)
        ]
        columns = np.array([block[:3] for block in found], np.int64).reshape(-1, 3)
        reserved = {
            one: int(np.maximum(total[device == one], 0).sum())
            for one in np.unique(device).tolist()
        }
        device_of, address, size = columns.T
        return cls(device_of, address, size, [frames for *_, frames in found], reserved)


def _column(rows: Sequence[Any], key: str) -> Ints:
    return integers([row.get(key) for row in rows])


def _used(device: int, segment: dict[str, Any]) -> Iterator[tuple[int, int, int, Any]]:
    """Yield device, address, bytes and frames of the blocks in use; older snapshots give them no address."""
    blocks = segment.get("blocks")
    rows = [b for b in blocks if type(b) is dict] if isinstance(blocks, list) else []
    size = np.maximum(_column(rows, "size"), 0)
    asked, own = _column(rows, "requested_size"), _column(rows, "address")
    [first] = integers([segment.get("address")]).tolist()
    place = np.where(own >= 0, own, first + np.cumsum(size) - size)
    for row, at, whole, part in zip(
        rows, place.tolist(), size.tolist(), asked.tolist(), strict=True
    ):
        state = row.get("state")
        if type(state) is str and state.startswith(USED) and at >= 0:
            real, frames = _history(row)
            yield device, at, next(n for n in (part, real, whole) if n >= 0), frames


def _history(block: dict[str, Any]) -> tuple[int, Any]:
    """Return the bytes that were asked for, -1 if unknown, and the frames: older snapshots have them in a history."""
    history = block.get("history")
    if not isinstance(history, list) or not history or type(history[0]) is not dict:
        return -1, block.get("frames")
    return int(integers([history[0].get("real_size")])[0]), history[0].get("frames")
