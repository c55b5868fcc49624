"""What PyTorch's allocators gave and took back as the frame `memory`: with profile_memory=True."""

from __future__ import annotations

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import MISSING
from importers.kineto.events import Events
from importers.kineto.numbers import integers
from importers.kineto.places import Places
from importers.texts import Ints

HOST = 0  # the type of device that is none: the host; 1 is CUDA
PAGEABLE, DEVICE, UNKNOWN = (
    frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "device", "unknown")
)
CUDA = 1


def memory(events: Events, places: Places) -> pd.DataFrame:
    """Return a row per allocation and release: ``bytes`` of a release are written as negative.

    The allocator stands for one pool per device; on the host it reserves nothing beyond what it gave.
    """
    size = integers([0 if count is None else count for count in events.column("Bytes")])
    device = events.ints("Device Type")
    reserved = events.ints("Total Reserved")
    kind = np.select([device == HOST, device == CUDA], [PAGEABLE, DEVICE], UNKNOWN)
    columns: dict[str, Ints | pd.Categorical] = {
        "time": events.start,
        "thread": places.thread(events),
        "process": places.process(events),
        "device": events.ints("Device Id"),
        "kind": frames.names(kind.astype(np.int64), frames.MEMORY_KINDS),
        "operation": np.where(size < 0, frames.RELEASE, frames.ALLOCATE),
        "address": events.ints("Addr"),
        "bytes": np.abs(size),
        "reserved": np.where((device == HOST) | (reserved < 0), MISSING, reserved),
        "allocated": events.ints("Total Allocated"),
    }
    table = frames.frame("memory", columns)
    there = np.flatnonzero(size != 0)
    return table if len(there) == len(table) else table.iloc[there].reset_index(drop=True)
