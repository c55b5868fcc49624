"""What a trace knows of its GPUs, as the frame `devices`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import MISSING
from importers.kineto.clean import named
from importers.kineto.events import Events
from importers.kineto.numbers import integers
from importers.texts import Ints

FACTS = {  # what Kineto calls it
    "memory_bytes": "totalGlobalMem",
    "compute_major": "computeMajor",
    "compute_minor": "computeMinor",
    "sm_count": "numSms",
    "warp_size": "warpSize",
    "threads_per_block": "maxThreadsPerBlock",
    "registers_per_sm": "regsPerMultiprocessor",
    "registers_per_block": "regsPerBlock",
    "shared_per_sm": "sharedMemPerMultiprocessor",
    "shared_per_block": "sharedMemPerBlock",
    "shared_per_block_optin": "sharedMemPerBlockOptin",
}
THREADS = "maxThreadsPerMultiprocessor"


def devices(properties: Any, by: Mapping[str, Events], activities: pd.DataFrame) -> pd.DataFrame:
    """Return a row per (process, device) that was used; a device's pid in the trace says which GPU it is."""
    pids = [pid for sort in ("kernels", "copies", "fills") for pid, _ in by[sort].where]
    used = activities[["process", "device"]].assign(gpu=integers(pids))
    used = used.drop_duplicates(["process", "device"]).sort_values(["process", "device"])
    process, device, gpu = (used[c].to_numpy() for c in ("process", "device", "gpu"))
    known = _known(properties)
    said = [known.get(number, {}) for number in gpu.tolist()]
    name = named([str(one.get("name", "")) for one in said])
    facts = {c: integers([one.get(theirs) for one in said]) for c, theirs in FACTS.items()}
    facts["warps_per_sm"] = _warps(integers([one.get(THREADS) for one in said]), facts["warp_size"])
    own = {"process": process, "device": device, "gpu": gpu}
    return frames.frame("devices", {**own, **facts, "name": name})


def _known(properties: Any) -> dict[int, dict[str, Any]]:
    every = properties if type(properties) is list else []
    return {one["id"]: one for one in every if type(one) is dict and type(one.get("id")) is int}


def _warps(threads: Ints, size: Ints) -> Ints:
    return np.where((threads > 0) & (size > 0), threads // np.maximum(size, 1), MISSING)
