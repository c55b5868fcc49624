"""The GPU behind each device number of a process, and what is known of it, as the frame `devices`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, ints_of, texts_of
from importers.frames import MISSING
from importers.nsys import schema
from importers.texts import Ints


def devices(read: dict[str, Columns], on_device: pd.DataFrame) -> pd.DataFrame:
    """Return a row per (process, device number) that was used."""
    used = on_device[["process", "device"]].drop_duplicates().sort_values(["process", "device"])
    process, device = used["process"].to_numpy(), used["device"].to_numpy()
    gpus = read["gpus"]
    gpu = _gpu_of(process, device, read)
    rows = {number: row for row, number in enumerate(ints_of(gpus, "gpu").tolist())}
    row = np.array([rows.get(number, MISSING) for number in gpu.tolist()], np.int64)
    names = [*texts_of(gpus, "name").decode(), ""]
    facts = {name: np.append(ints_of(gpus, name), MISSING)[row] for name in frames.DEVICE_FACTS}
    name = frames.named([names[r] for r in row.tolist()])
    return frames.frame(
        "devices", {"process": process, "device": device, "gpu": gpu, "name": name, **facts}
    )


def _gpu_of(process: Ints, device: Ints, read: dict[str, Columns]) -> Ints:
    declared = [ints_of(read["devices"], c).tolist() for c in ("pid", "device", "gpu")]
    gpu_of: dict[tuple[int, int], int] = {}
    for pid, number, gpu in zip(*declared, strict=True):
        # Processes of two machines may have one pid: of two GPUs neither is known to be meant.
        gpu_of[pid, number] = gpu if gpu_of.get((pid, number), gpu) == gpu else MISSING
    gpus = read["gpus"]
    by_number = dict(
        zip(ints_of(gpus, "device").tolist(), ints_of(gpus, "gpu").tolist(), strict=True)
    )
    keys = zip(((process >> 24) & schema.THREAD_BITS).tolist(), device.tolist(), strict=True)
    found = [gpu_of.get((pid, number), by_number.get(number, MISSING)) for pid, number in keys]
    return np.array(found, np.int64)
