"""Blocks that fit a multiprocessor: what NVIDIA's cuda_occupancy.h (CUDA 13.0) computes for launches of many GPUs."""

from __future__ import annotations

import json

import pytest

import bridge
from bridge.analyze.cost.occupancy import Occupancy

# Compute capability, shared memory and threads of a multiprocessor; registers of a thread, threads and shared
# memory of a block; the blocks that cudaOccMaxActiveBlocksPerMultiprocessor returned, compiled with gcc.
# A report of PyTorch's profiler does not tell how many blocks a multiprocessor takes.
FIT = [
    ((6, 0), 65_536, 2_048, 85, 64, 2_304, 11),  # two partitions of registers
    ((6, 1), 98_304, 2_048, 85, 64, 2_304, 10),  # four
    ((7, 0), 98_304, 2_048, 85, 64, 2_304, 10),
    ((7, 0), 98_304, 2_048, 32, 64, 4_224, 22),  # shared memory by 256 bytes
    ((8, 0), 167_936, 2_048, 32, 64, 4_224, 32),  # by 128 bytes; the most blocks
    ((8, 0), 167_936, 2_048, 184, 32, 0, 8),
    ((9, 0), 233_472, 2_048, 168, 384, 200_000, 1),
    ((9, 0), 233_472, 2_048, 255, 96, 0, 2),
    ((10, 0), 233_472, 2_048, 40, 1_000, 0, 1),
    ((7, 5), 65_536, 1_024, 16, 32, 0, 16),
    ((8, 0), 167_936, 2_048, 16, 32, 0, 32),
    ((8, 6), 102_400, 1_536, 16, 32, 0, 16),
    ((8, 9), 102_400, 1_536, 16, 32, 0, 24),
    ((12, 0), 102_400, 1_536, 16, 32, 0, 24),
]


def test_as_many_blocks_fit_as_nvidias_calculator_says(tmp_path):
    devices, events = [], []
    for gpu, ((major, minor), shared_of_sm, most, registers, block, shared, _) in enumerate(FIT):
        limits = {"regsPerMultiprocessor": 65_536, "sharedMemPerMultiprocessor": shared_of_sm,
                  "maxThreadsPerMultiprocessor": most, "warpSize": 32, "numSms": 10}  # fmt: skip
        devices.append({"id": gpu, "computeMajor": major, "computeMinor": minor, **limits})
        args = {"device": gpu, "stream": 7, "correlation": gpu + 1, "registers per thread": registers,
                "shared memory": shared, "grid": [100_000, 1, 1], "block": [block, 1, 1]}  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": "k", "pid": gpu, "tid": 7, "ts": gpu, "dur": 1, "args": args}
        )  # fmt: skip
    path = tmp_path / "occupancy.pt.trace.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events})
    )
    joined = bridge.load(path)
    assert joined.capture.activities.device.tolist() == list(range(len(FIT)))
    found = Occupancy.of(joined.attributed).percent.tolist()
    expected = [100 * fit * -(-block // 32) / (most // 32) for *_, most, _, block, _, fit in FIT]
    assert found == pytest.approx(expected)
