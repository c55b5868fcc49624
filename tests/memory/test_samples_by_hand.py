"""Tables of samples of memory: of a report whose clock does not begin at 0."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from made_reports import MARK, PUSH_POP, Made, thread
from sampling.fakes import Torch

import bridge
from bridge.analyze.cost.memory.samples import Samples, by_sample, sample_peaks, samples_by_op
from bridge.annotate import nvtx_op
from bridge.render import summaries
from bridge.report import load

BEGAN = 5_000


def test_samples_are_told_by_the_time_since_the_report_began_and_ops_by_their_peaks(tmp_path):
    made, host = Made(), {"thread": thread(100)}
    made.annotation(75, 1, None, text="memory", domain=9, **host)
    for n, (op, used) in enumerate((("small", 10), ("large", 700), ("none", 5), ("large", 90))):
        start = BEGAN + 100 * n
        made.annotation(PUSH_POP, start, start + 50, text=op, **host)
        said = {"text": "counter:cuda:0 allocated", "domain": 9, "payload": used}
        made.annotation(MARK, start + 20, None, **said, **host)
    samples = Samples.of(load(made.written(tmp_path / "made.sqlite")).attributed)
    told = by_sample(samples).to_pandas()[["trace", "time_ns", "op", "used_bytes"]]
    assert told.to_numpy().tolist() == [
        [0, 20, "small", 10], [1, 120, "large", 700], [2, 220, "none", 5], [3, 320, "large", 90],
    ]  # fmt: skip
    table = samples_by_op(samples).to_pandas()[["op", "samples", "peak_bytes"]]
    assert table.to_dict("index") == {
        0: {"op": "large", "samples": 2, "peak_bytes": 700},
        1: {"op": "small", "samples": 1, "peak_bytes": 10},
        2: {"op": "none", "samples": 1, "peak_bytes": 5},
    }


SAMPLED = [  # device, bytes allocated, reserved and of the process; None was not sampled
    ("cuda:0", 10, 100, 500),
    ("cuda:1", 20, 200, None),
    ("cuda:0", 30, None, 700),
    ("cuda:1", 40, 400, 900),
    ("cuda:0", 50, 300, None),
    ("host", 60, None, None),
    ("cuda:0", 70, 300, 200),  # less than the allocator holds: sampled at another time
]


def test_driver_and_libraries_are_what_the_process_has_beside_its_allocator(tmp_path):
    made, host, at = Made(), {"thread": thread(100)}, BEGAN
    made.annotation(75, 1, None, text="memory", domain=9, **host)
    made.annotation(PUSH_POP, BEGAN, BEGAN + 100, text="op", **host)
    for device, *sizes in SAMPLED:
        names = ("resident" if device == "host" else "allocated", "reserved", "process")
        for name, size in zip(names, sizes, strict=True):
            at += 1
            if size is not None:
                text = f"counter:{device} {name}"
                made.annotation(MARK, at, None, text=text, domain=9, payload=size, **host)
    samples = Samples.of(load(made.written(tmp_path / "made.sqlite")).attributed)
    columns = ["device", "used_bytes", "reserved_bytes", "driver_bytes"]
    found = by_sample(samples).to_pandas()[columns]
    truth = []
    for device, used, reserved, process in SAMPLED:
        held = used if reserved is None else reserved
        driver = -1 if process is None else max(0, process - held)
        truth.append((device, used, -1 if reserved is None else reserved, driver))
    truth.sort(key=lambda row: row[0])  # stable: by time within a device
    assert [tuple(row) for row in found.to_numpy().tolist()] == truth
    peaks = sample_peaks(samples).to_pandas().set_index("device")["driver_bytes"].to_dict()
    assert peaks == {"cuda:0": 670, "cuda:1": 500, "host": -1}
    lines = summaries.sampled_lines(sample_peaks(samples))
    assert lines.count("driver and libraries take up to") == 2


def test_nvml_is_asked_at_steps(tmp_path, monkeypatch):
    process = SimpleNamespace(pid=os.getpid(), usedGpuMemory=5 << 20)
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda _gpu: None,
        nvmlDeviceGetComputeRunningProcesses=lambda _handle: [process],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "torch", Torch())
    with bridge.profile(level=0, profile_memory=True, path=tmp_path / "run.jsonl"), nvtx_op("a"):
        pass
    peaks = sample_peaks(Samples.of(load(tmp_path / "run.jsonl").attributed))
    [driver] = peaks[peaks["device"] == "cuda:0"]["driver_bytes"]
    assert driver == (5 << 20) - (1 << 20)  # of which the fake allocator holds 1 MiB
