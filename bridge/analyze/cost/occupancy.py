"""Estimate the occupancy of each kernel from its launch geometry and the limits of the GPU."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import Floats
from bridge.importers import frames
from bridge.importers.arrays import lookup, positions
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

# The limits and units of NVIDIA's cuda_occupancy.h (CUDA 13).
REGISTER_UNIT = 256  # registers are allocated to a warp in this unit
PARTITIONS = 4  # of a multiprocessor; each has a share of the registers
PARTITIONS_CC_6_0 = 2
SHARED_UNIT = 128  # bytes; allocation unit of a block, from compute capability 8.0 on
SHARED_UNIT_BEFORE_8_0 = 256
SHARED_RESERVED = 1024  # bytes per block for the system, from compute capability 8.0 on
AMPERE = 8
MAX_BLOCKS = {
    3: 16,
    5: 32,
    6: 32,
    7: 32,
    8: 16,
    9: 32,
    10: 32,
    11: 32,
    12: 24,
}  # per multiprocessor, by major version
MAX_BLOCKS_BY_MINOR = {(7, 5): 16, (8, 0): 32, (8, 9): 24, (10, 1): 24, (11, 0): 24}
SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@record
class Occupancy:
    """Blocks, warps and occupancy of each activity, NaN where unknown.

    ``blocks_per_sm`` and ``warps_per_sm`` are those of the whole launch, per multiprocessor.
    ``percent`` is the maximum of resident warps, in percent of the warps that a multiprocessor can
    hold.
    """

    blocks_per_sm: Floats
    warps_per_sm: Floats
    percent: Floats

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Occupancy:
        """Return estimates for every kernel with a known geometry and GPU."""
        table = attributed.capture.activities
        gpu = _device_facts(attributed)
        sizes = np.array([table[c] for c in SIZES])
        is_known = (sizes > 0).all(axis=0) & (gpu["sm_count"] > 0) & (gpu["warps_per_sm"] > 0)
        unknown = np.full(len(table), np.nan)
        grid, block = (_product(part) for part in (sizes[:3], sizes[3:]))
        warps = -(-block // np.maximum(gpu["warp_size"], 1))
        blocks_per_sm = np.where(is_known, grid / np.maximum(gpu["sm_count"], 1), unknown)
        fit = _resident_blocks(table, gpu, warps)
        resident = np.minimum(fit, blocks_per_sm) * warps
        percent = np.minimum(100, 100 * resident / np.maximum(gpu["warps_per_sm"], 1))
        return cls(blocks_per_sm, blocks_per_sm * warps, np.where(is_known, percent, unknown))


def _resident_blocks(table: frames.Activities, gpu: dict[str, Ints], warps: Ints) -> Ints:
    """Return how many blocks fit on a multiprocessor at once, by the scarcest resource."""
    shared = sum(np.maximum(table[c], 0) for c in ("shared_static", "shared_dynamic"))
    ampere = gpu["compute_major"] >= AMPERE
    reserved = np.where(ampere, SHARED_RESERVED, 0)
    unit = np.where(ampere, SHARED_UNIT, SHARED_UNIT_BEFORE_8_0)
    per_block = np.maximum(_round_up(shared + reserved, unit), 1)
    limits = (
        gpu["warps_per_sm"] // np.maximum(warps, 1),
        _or_unlimited(_block_limit(gpu)),
        _register_limit(table, gpu) // np.maximum(warps, 1),
        _or_unlimited(gpu["shared_per_sm"]) // per_block,
    )
    resident: Ints = np.minimum.reduce(limits)
    return resident


def _register_limit(table: frames.Activities, gpu: dict[str, Ints]) -> Ints:
    """Return for how many warps a multiprocessor has registers.

    A warp takes all its registers from one partition.
    """
    registers = table.registers * np.maximum(gpu["warp_size"], 1)
    per_warp = _round_up(np.maximum(registers, 1), REGISTER_UNIT)
    is_6_0 = (gpu["compute_major"] == 6) & (gpu["compute_minor"] == 0)  # noqa: PLR2004 (compute capability 6.0)
    partitions = np.where(is_6_0, PARTITIONS_CC_6_0, PARTITIONS)
    warps_per_partition = _or_unlimited(gpu["registers_per_sm"]) // partitions // per_warp
    warps: Ints = warps_per_partition * partitions
    return warps


def _block_limit(gpu: dict[str, Ints]) -> Ints:
    """Return the block limit of a multiprocessor: as recorded, else by compute capability.

    It is -1 where unknown.
    """
    blocks = gpu["blocks_per_sm"].copy()
    for major, limit in MAX_BLOCKS.items():
        blocks[(gpu["blocks_per_sm"] <= 0) & (gpu["compute_major"] == major)] = limit
    for (major, minor), limit in MAX_BLOCKS_BY_MINOR.items():
        is_version = (gpu["compute_major"] == major) & (gpu["compute_minor"] == minor)
        blocks[(gpu["blocks_per_sm"] <= 0) & is_version] = limit
    return blocks


def _device_facts(attributed: AttributedCapture) -> dict[str, Ints]:
    """Return the recorded facts of the GPU of each activity."""
    activities, devices = attributed.capture.activities, attributed.capture.devices
    keys = ("report", "process", "device")
    columns = [np.concatenate((devices[c], activities[c])) for c in keys]
    code, _ = number_groups(*columns)
    device_code, activity_code = code[: len(devices)], code[len(devices) :]
    row = positions(device_code, int(code.max(initial=NONE)) + 1)
    return {c: lookup(devices[c], row[activity_code]) for c in frames.DEVICE_FACTS}


def _or_unlimited(value: Ints) -> Ints:
    """Return a limit; an unknown one becomes the maximum of int64."""
    return np.where(value > 0, value, np.iinfo(np.int64).max)


def _round_up(value: Ints, unit: int | Ints) -> Ints:
    return -(-value // unit) * unit


def _product(sizes: NDArray[np.int64]) -> Ints:
    product: Ints = np.prod(np.maximum(sizes, 1), axis=0)
    return product


# -- Use of multiprocessors, estimated like in the PyTorch plugin of TensorBoard


UNKNOWN = -1.0
ESTIMATES = ("sm_efficiency", "occupancy")


def sm_estimates(
    attributed: AttributedCapture, rows: Ints, device: Ints, span: Ints
) -> dict[str, Floats]:
    """Return ``sm_efficiency`` and ``occupancy`` of each GPU.

    ``rows`` are activities and ``device`` is the GPU of each; ``span`` is the span of each GPU in
    ns.
    """
    grid, multiprocessors = (
        table[c]
        for table, c in (
            (attributed.capture.activities, "grid_x"),
            (attributed.capture.devices, "sm_count"),
        )
    )
    if not ((grid > 0).any() and (multiprocessors > 0).any()):
        return {name: np.full(len(span), UNKNOWN) for name in ESTIMATES}
    estimate = Occupancy.of(attributed)
    start, end = attributed.capture.activities.start[rows], attributed.end[rows]
    blocks, percent = estimate.blocks_per_sm[rows], estimate.percent[rows]
    result = (
        sm_efficiency(device, start, end=end, blocks=blocks, span=span),
        occupancy(device, end - start, percent, len(span)),
    )
    return dict(zip(ESTIMATES, result, strict=True))


def sm_efficiency(device: Ints, start: Ints, end: Ints, blocks: Floats, span: Ints) -> Floats:
    """Return the fraction of each GPU's multiprocessors that had a block, averaged over its span.

    At each instant the ``blocks`` per multiprocessor of all running kernels are added up, to 1 at
    most. The result is -1 where no kernel's blocks are known.
    """
    rows_known = np.flatnonzero(blocks > 0)
    device, start, end = device[rows_known], start[rows_known], end[rows_known]
    blocks = np.minimum(blocks[rows_known], 1)  # one block per multiprocessor fills it
    result = np.full(len(span), UNKNOWN)
    time, change = np.concatenate((start, end)), np.concatenate((blocks, -blocks))
    gpus = np.concatenate((device, device))
    order = order_by(gpus, time)
    gpus, time, running = gpus[order], time[order], np.cumsum(change[order])
    for first, last in pairwise(run_edges(gpus).tolist()):  # one iteration per GPU
        number = int(gpus[first])
        busy_share = np.minimum(running[first : last - 1] - (running[first - 1] if first else 0), 1)
        # One after the other: in which order `sum` adds differs between versions of NumPy.
        total = float(np.cumsum(busy_share * np.diff(time[first:last]))[-1])
        result[number] = total / max(1, int(span[number]))
    return result


def occupancy(device: Ints, time: Ints, occupancy_percent: Floats, size: int) -> Floats:
    """Return the occupancy of each GPU as a fraction: the mean over its kernels, weighted by time.

    The result is -1 where no kernel's occupancy is known.
    """
    rows_known = np.flatnonzero(occupancy_percent >= 0)
    weights = time[rows_known].astype(np.float64)
    weight = np.bincount(device[rows_known], weights, minlength=size)
    part = np.bincount(
        device[rows_known], weights * occupancy_percent[rows_known] / 100, minlength=size
    )
    mean: Floats = np.divide(part, weight, out=np.full(size, UNKNOWN), where=weight > 0)
    return mean
