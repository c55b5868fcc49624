"""Memory as RAF's and MXNet's profilers tell it, and MegEngine's rate of samples."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sampling.fakes import Torch

from bridge import memory, nvtx_op
from bridge.annotate.memory import scopes
from bridge.annotate.memory.scopes import Live
from bridge.compat.megengine import Profiler
from bridge.compat.mxnet import profiler as mxnet
from bridge.compat.raf import memory_profiler

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scopes, "_live", Live())
    yield
    memory_profiler.stop()  # ends the ranges of ops, too
    memory.stop()
    memory.reset()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_raf_tells_peaks_in_mib(torch: Torch) -> None:
    memory_profiler.start()
    for name in ("conv", "dense"):
        with nvtx_op(name):
            torch.allocate(3 * MIB)
    memory_profiler.stop()
    with nvtx_op("later"):
        torch.allocate(MIB)
    expected = {"max_used": 6.0, "max_allocated": 6.0, "max_trace_idx": 1, "num_gc": 2}
    for device in ("cuda(0)", "cuda", "gpu(0)", "cuda:0", "cuda(id=0)"):
        assert memory_profiler.get_max_memory_info(device) == expected
    lines = memory_profiler.get_memory_trace("cuda(0)").splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["0", "conv", "3.000"],
        ["1", "dense", "6.000"],
    ]


def test_raf_knows_nothing_of_other_devices_nor_after_a_reset(torch: Torch) -> None:
    memory_profiler.start()
    with nvtx_op("a"):
        torch.allocate(1)
    assert memory_profiler.get_memory_trace("cuda(5)") == ""
    memory_profiler.reset()
    nothing = {"max_used": 0.0, "max_allocated": 0.0, "max_trace_idx": -1, "num_gc": 0}
    assert memory_profiler.get_max_memory_info("cpu") == nothing
    with pytest.raises(ValueError, match="no device"):
        memory_profiler.get_max_memory_info("tpu(0)")


def test_mxnet_lists_what_is_alive_by_scope(torch: Torch, tmp_path: Path) -> None:
    prefix = tmp_path / "gpu"
    mxnet.set_config(
        filename=str(tmp_path / "p.json"), gpu_memory_profile_filename_prefix=str(prefix)
    )
    mxnet.set_state("run")
    with mxnet.scope("net"), mxnet.scope("fc"):
        torch.allocate(100)
    mxnet.dump()
    with (tmp_path / f"gpu-pid_{os.getpid()}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["Attribute Name", "Requested Size", "Device", "Actual Size", "Reuse?"],
        ["net:fc:", "100", "0", "512", "0"],
    ]


def test_mxnet_writes_no_list_without_a_gpu_or_unasked(torch: Torch, tmp_path: Path) -> None:
    for options in ({"profile_memory": False}, {}):
        mxnet.set_config(
            filename=str(tmp_path / "p.json"),
            gpu_memory_profile_filename_prefix=str(tmp_path / "gpu"),
            **{"profile_memory": True, **options},
        )
        torch.allocate(1)
        torch.initialized = bool(options)
        mxnet.set_state("run")
        mxnet.dump()
    assert {path.name for path in tmp_path.iterdir()} == {"p.json"}


def test_megengine_samples_every_few_ops(tmp_path: Path) -> None:
    profiler = Profiler(path=str(tmp_path), sample_rate=2)
    profiler.start()
    for _ in range(6):
        with nvtx_op("op"):
            pass
    profiler.stop()
    profiler.dump()
    events = json.loads(Path(profiler.path).read_text(encoding="utf-8"))["traceEvents"]
    values = [event["args"]["cpu0_alloc_mem"] for event in events if event["ph"] == "C"]
    assert len(values) >= 3
    assert min(values) > MIB
