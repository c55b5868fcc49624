"""How full a kernel's launch leaves the multiprocessors: an estimate from its geometry and the GPU's limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import Floats
from bridge.join.arrays import NONE, Ints, number
from bridge.join.attributed import Attributed
from importers import frames

# The limits and units of NVIDIA's cuda_occupancy.h (CUDA 13).
REGISTERS_AT_A_TIME = 256  # for a warp
PARTITIONS = 4  # of a multiprocessor, each with its own part of the registers
PARTITIONS_OF_6_0 = 2
SHARED_AT_A_TIME = 128  # bytes, for a block, from compute capability 8.0 on
SHARED_AT_A_TIME_BEFORE = 256
SHARED_OF_THE_SYSTEM = 1024  # bytes a block, from compute capability 8.0 on
SINCE_AMPERE = 8
BLOCKS = {3: 16, 5: 32, 6: 32, 7: 32, 8: 16, 9: 32, 10: 32, 11: 32, 12: 24}  # a multiprocessor
BLOCKS_OF_MINOR = {(7, 5): 16, (8, 0): 32, (8, 9): 24, (10, 1): 24, (11, 0): 24}
SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True)
class Occupancy:
    """Per activity, NaN where unknown: blocks and warps of the launch per multiprocessor, and in per cent of the
    warps that fit how many are resident at most.
    """  # noqa: D205 (a table in the text)

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
    shared = sum(np.maximum(frames.ints(table, c), 0) for c in ("shared_static", "shared_dynamic"))
    ampere = gpu["compute_major"] >= SINCE_AMPERE
    system = np.where(ampere, SHARED_OF_THE_SYSTEM, 0)
    unit = np.where(ampere, SHARED_AT_A_TIME, SHARED_AT_A_TIME_BEFORE)
    per_block = np.maximum(_up(shared + system, unit), 1)
    limits = (
        gpu["warps_per_sm"] // np.maximum(warps, 1),
        _limit(_blocks(gpu)),
        _warps_with_registers(table, gpu) // np.maximum(warps, 1),
        _limit(gpu["shared_per_sm"]) // per_block,
    )
    fit: Ints = np.minimum.reduce(limits)
    return fit


def _warps_with_registers(table: pd.DataFrame, gpu: dict[str, Ints]) -> Ints:
    """Return how many warps a multiprocessor has registers for: a warp takes all its registers from one partition."""
    registers = frames.ints(table, "registers") * np.maximum(gpu["warp_size"], 1)
    per_warp = _up(np.maximum(registers, 1), REGISTERS_AT_A_TIME)
    has_two = (gpu["compute_major"] == 6) & (gpu["compute_minor"] == 0)  # noqa: PLR2004 (compute capability 6.0)
    partitions = np.where(has_two, PARTITIONS_OF_6_0, PARTITIONS)
    in_each = _limit(gpu["registers_per_sm"]) // partitions // per_warp
    warps: Ints = in_each * partitions
    return warps


def _blocks(gpu: dict[str, Ints]) -> Ints:
    """Return how many blocks a multiprocessor takes: as the report tells, else by compute capability; -1 if unknown."""
    blocks = gpu["blocks_per_sm"].copy()
    for major, most in BLOCKS.items():
        blocks[(gpu["blocks_per_sm"] <= 0) & (gpu["compute_major"] == major)] = most
    for (major, minor), most in BLOCKS_OF_MINOR.items():
        is_one = (gpu["compute_major"] == major) & (gpu["compute_minor"] == minor)
        blocks[(gpu["blocks_per_sm"] <= 0) & is_one] = most
    return blocks


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


def _up(value: Ints, unit: int | Ints) -> Ints:
    return -(-value // unit) * unit


def _product(sizes: NDArray[np.int64]) -> Ints:
    product: Ints = np.prod(np.maximum(sizes, 1), axis=0)
    return product
