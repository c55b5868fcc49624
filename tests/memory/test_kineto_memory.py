"""What PyTorch's allocators say in a trace: written by hand as it writes it, and of the PyTorch that is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bridge
from bridge import importers
from bridge.analyze.cost.memory import MemoryUsage, by_event, by_op, summary
from bridge.importers import frames

pytestmark = pytest.mark.slow


SCRIPT = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
step = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
kept = []
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
    for n in range(4):
        with torch.profiler.record_function(f"ProfilerStep#{n}"):
            kept.append(torch.ones(1000))
            model(torch.randn(32, 64)).sum().backward()
            step.step()
            step.zero_grad()
profiled.export_chrome_trace(sys.argv[1])
"""


def memory_event(ts: int, size: int, address: int, total: int, **more) -> dict:
    said = {"Total Allocated": total, "Total Reserved": 0, "Bytes": size, "Addr": address}
    return {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 5, "tid": 6, "ts": ts,
        "args": {**said, "Device Id": -1, "Device Type": 0, "Ev Idx": 1, **more},
    }  # fmt: skip


def op(name: str, ts: int, dur: int) -> dict:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": 6, "ts": ts, "dur": dur}


@pytest.fixture
def trace(tmp_path) -> Path:
    cuda = {"Device Type": 1, "Device Id": 3}
    events = [
        op("aten::outer", 10, 80),
        op("aten::inner", 20, 20),
        memory_event(15, 100, 1, 600, **cuda, **{"Total Reserved": 2000}),
        memory_event(25, 400, 2, 1000, **cuda, **{"Total Reserved": 4000}),
        memory_event(35, -400, 2, 600, **cuda, **{"Total Reserved": 4000}),
        memory_event(50, 8, 2, 8),
        memory_event(95, -100, 1, 500, **cuda, **{"Total Reserved": 1000}),
        memory_event(96, 0, 9, 500, **cuda),
        {**memory_event(97, 1, 9, 1), "args": "none"},
    ]
    path = tmp_path / "made.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_a_trace_by_hand(trace):
    report = importers.load(trace)
    table = report.memory
    assert list(vars(table)) == list(frames.FRAMES["memory"].types)
    assert table["bytes"].tolist() == [100, 400, 400, 8, 100]
    assert table["operation"].tolist() == [0, 0, 1, 0, 1]
    assert table["reserved"].tolist() == [2000, 4000, 4000, -1, 1000]
    held = MemoryUsage.of(bridge.load(trace).attributed)
    gpu, host = summary(held).records()
    assert (gpu["device"], gpu["memory"], gpu["before_bytes"]) == (3, "device", 500)
    assert (gpu["peak_bytes"], gpu["peak_op"]) == (1000, "aten::inner")
    assert (gpu["peak_reserved_bytes"], gpu["fragmentation"]) == (4000, 0.75)
    assert (host["memory"], host["peak_bytes"], host["peak_reserved_bytes"]) == ("pageable", 8, -1)
    ops = by_op(held).to_pandas().set_index(["op", "memory"])
    assert ops.loc[("aten::outer", "device"), "total_allocated_bytes"] == 500
    assert ops.loc[("aten::outer", "device"), "net_bytes"] == 100
    assert ops.loc[("aten::outer", "device"), "peak_bytes"] == 500
    assert ops.loc[("(no op)", "device"), "released_bytes"] == 100


def test_running_totals_are_those_that_pytorch_itself_wrote(tmp_path):
    """In a process of its own, for a profiler leaves threads behind."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "real.pt.trace.json"
    line = [sys.executable, "-c", SCRIPT, str(path)]
    subprocess.run(line, check=True, capture_output=True, timeout=300)
    joined = bridge.load(path)
    held, table = MemoryUsage.of(joined.attributed), joined.capture.memory
    said = table.allocated[held.events.row]
    assert len(table) > 100
    assert np.array_equal(held.used, said)
    assert summary(held)["peak_bytes"].tolist() == [said.max()]
    trace = by_event(held).to_pandas()
    assert set(trace["step"]) >= {0, 1, 2, 3}
    assert trace["op"].str.startswith("aten::").any()
