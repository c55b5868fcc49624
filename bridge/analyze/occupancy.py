"""How full a kernel's launch leaves the multiprocessors: an estimate from its geometry and the GPU's limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import Floats
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, number
from importers import frames

REGISTERS_AT_A_TIME = 256  # for a warp
SHARED_AT_A_TIME = 128  # bytes, for a block
SHARED_OF_THE_SYSTEM = 1024  # bytes a block, from compute capability 8.0 on
WITH_SYSTEM_SHARED = 8
SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True)
class Occupancy:
    """Per activity, NaN where unknown: blocks and warps of the launch per multiprocessor, and in per cent of the
    warps that fit how many are resident at most.
    """  # noqa: D205

    blocks_per_sm: Floats
    warps_per_sm: Floats
    percent: Floats

    @classmethod
    def of(cls, joined: Attributed) -> Occupancy:
        """Estimate for every kernel whose geometry and GPU are known."""
        table = joined.report.activities
        gpu = _facts(joined)
        sizes = np.array([frames.ints(table, c) for c in SIZES])
        known = (sizes > 0).all(axis=0) & (gpu["sm_count"] > 0) & (gpu["warps_per_sm"] > 0)
        unknown = np.full(len(table), np.nan)
        grid, block = (_product(part) for part in (sizes[:3], sizes[3:]))
        warps = -(-block // np.maximum(gpu["warp_size"], 1))
        blocks_per_sm = np.where(known, grid / np.maximum(gpu["sm_count"], 1), unknown)
        fit = _blocks_that_fit(table, gpu, warps)
        resident = np.minimum(fit, blocks_per_sm) * warps
        percent = np.minimum(100, 100 * resident / np.maximum(gpu["warps_per_sm"], 1))
        return cls(blocks_per_sm, blocks_per_sm * warps, np.where(known, percent, unknown))


def _blocks_that_fit(table: pd.DataFrame, gpu: dict[str, Ints], warps: Ints) -> Ints:
    """Return how many blocks a multiprocessor holds at once: what runs out first limits them."""
    registers = frames.ints(table, "registers") * np.maximum(gpu["warp_size"], 1)
    per_warp = _up(np.maximum(registers, 1), REGISTERS_AT_A_TIME)
    shared = sum(np.maximum(frames.ints(table, c), 0) for c in ("shared_static", "shared_dynamic"))
    system = np.where(gpu["compute_major"] >= WITH_SYSTEM_SHARED, SHARED_OF_THE_SYSTEM, 0)
    per_block = np.maximum(_up(shared + system, SHARED_AT_A_TIME), 1)
    limits = (
        gpu["warps_per_sm"] // np.maximum(warps, 1),
        _limit(gpu["blocks_per_sm"]),
        _limit(gpu["registers_per_sm"]) // per_warp // np.maximum(warps, 1),
        _limit(gpu["shared_per_sm"]) // per_block,
    )
    fit: Ints = np.minimum.reduce(limits)
    return fit


def _facts(joined: Attributed) -> dict[str, Ints]:
    """Return what is known of the GPU of each activity."""
    activities, devices = joined.report.activities, joined.report.devices
    keys = ("report", "process", "device")
    columns = [np.concatenate((frames.ints(devices, c), frames.ints(activities, c))) for c in keys]
    code, _ = number(*columns)
    of, own = code[: len(devices)], code[len(devices) :]
    row = np.full(int(code.max(initial=NONE)) + 1, NONE)
    row[of] = np.arange(len(of))
    return {c: np.append(frames.ints(devices, c), NONE)[row[own]] for c in frames.DEVICE_FACTS}


def _limit(value: Ints) -> Ints:
    """Return a limit; one that is not known limits nothing."""
    return np.where(value > 0, value, np.iinfo(np.int64).max)


def _up(value: Ints, unit: int) -> Ints:
    return -(-value // unit) * unit


def _product(sizes: NDArray[np.int64]) -> Ints:
    product: Ints = np.prod(np.maximum(sizes, 1), axis=0)
    return product
