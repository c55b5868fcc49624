"""Memory of the running process: samples at the ends of ops, peaks, scopes; GPUs are stood for by fakes."""

from __future__ import annotations

import csv
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorder import Recorder
from session.watched import unchanged

import bridge
from bridge import memory, nvtx_op
from bridge.annotate import emit
from bridge.annotate.memory import sampling, scopes
from bridge.annotate.memory.scopes import Live
from bridge.annotate.memory.usage import uses
from sampling.fakes import Runtime, Torch, release

pytestmark = pytest.mark.slow


MIB = 1 << 20


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scopes, "_live", Live())
    memory.reset()
    with unchanged():
        yield
        memory.stop()
        scopes.watch(False)
    memory.reset()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@nvtx_op("allocate")
def allocate(torch: Torch, size: int, device: int = 0) -> dict[str, Any]:
    return torch.allocate(size, device)


@nvtx_op("release")
def let_go(block: dict[str, Any]) -> None:
    release(block)


def test_peaks_are_those_of_a_plain_loop(torch: Torch) -> None:
    memory.start()
    held, used = [], []
    for size in (700, 512, 4000, 100):
        held.append(allocate(torch, size))
        used.append(torch.allocated(0))
        if len(held) > 2:
            let_go(held.pop(0))
            used.append(torch.allocated(0))
    peaks = memory.max_info("cuda:0")
    assert (peaks.used, peaks.used_at) == (max(used), used.index(max(used)))
    assert (peaks.used_op, peaks.reserved, peaks.reserved_at) == ("allocate", MIB, 0)
    assert memory.max_info() == peaks
    lines = memory.trace().splitlines()
    assert lines[0] == "Sizes are in MiB."
    assert lines[1].split() == ["#Trace", "#Tag", "used", "alloc"]
    assert [line.split()[2] for line in lines[2:]] == [f"{one / MIB:.3f}" for one in used]


@pytest.mark.parametrize(("rate", "samples"), [(1, 10), (3, 3), (11, 0)])
def test_every_so_many_ops_there_is_a_sample(torch: Torch, rate: int, samples: int) -> None:
    memory.start(sample_rate=rate)
    for _ in range(10):
        allocate(torch, 1)
    assert len(memory.trace("cuda:0").splitlines()) == (samples + 2 if samples else 0)


def test_reset_begins_anew_and_stop_keeps(torch: Torch) -> None:
    memory.start()
    allocate(torch, 5000)
    memory.reset()
    assert memory.max_info("cuda:0") == (-1, -1, "", -1, -1, "")
    assert memory.trace("cuda:0") == ""
    allocate(torch, 1)
    memory.stop()
    allocate(torch, 9000)
    assert memory.max_info("cuda:0").used == 5120 + 512
    assert memory.max_info("cuda:0").used_at == 0


def test_the_cpu_is_what_is_resident() -> None:
    memory.start()
    with nvtx_op("large"):
        held = bytearray(os.urandom(1) * (32 * MIB))
    peaks = memory.max_info("cpu")
    assert peaks.used > len(held)
    assert (peaks.used_op, peaks.reserved) == ("large", -1)
    assert memory.max_info() == peaks  # no GPU is in use
    assert memory.trace().splitlines()[2].split()[1] == "large"


def test_ranges_go_where_they_went(torch: Torch) -> None:
    recorder = Recorder()
    reason = emit.state.reason
    before = emit.use(recorder)
    try:
        memory.start()
        with nvtx_op("outer"), nvtx_op("inner", domain="d"):
            bridge.mark("here")
        phase = bridge.nvtx_range("phase")
        phase.start()
        phase.end()
        memory.stop()
        assert emit.state.emitter is recorder
        assert recorder.all_closed()
        assert recorder.names() == ["outer", "inner"]
        assert recorder.phases_ended == ["phase"]
        found = [(label.name, label.domain, value) for label, value, _ in recorder.marks]
        assert ("here", None, 0) in found
        assert ("counter:cuda:0 reserved", "memory", MIB) in found
    finally:
        emit.use(before, reason)


def test_a_sample_lies_in_the_range_of_its_op() -> None:
    with bridge.profile(level=0, sample_rate=1) as session, nvtx_op("outer"):
        for _ in range(3):
            with nvtx_op("inner"):
                pass
    report = session.report.capture
    marks = report.marks.take(report.marks.name == "counter:host resident")
    inner = report.ranges.take(report.ranges.name == "inner")
    within = [
        int(((inner["start"] <= time) & (time <= inner["end"])).sum()) for time in marks["time"]
    ]
    assert sum(within) == 3


def test_without_a_rate_a_session_samples_nothing() -> None:
    with bridge.profile(level=0) as session, nvtx_op("a"):
        pass
    assert not len(session.report.capture.marks)


@pytest.mark.parametrize("rate", [-1, 1.5, "2", True, float("nan")])
def test_a_rate_is_a_count(rate: Any) -> None:
    with pytest.raises(ValueError, match="sample_rate"):
        bridge.profile(sample_rate=rate)
    with pytest.raises(ValueError, match="sample_rate"):
        memory.start(sample_rate=rate)


def test_sampling_takes_some_rate() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        memory.start(sample_rate=0)
    assert not sampling.is_running()


def of_ops(session: bridge.Session) -> list[str]:
    """Return the op that each sample of GPU 0 lies in."""
    from bridge.analyze.cost.memory.samples import Samples, by_sample

    rows = by_sample(Samples.of(session.report.attributed)).records()
    return [row["op"] for row in rows if row["device"] == "cuda:0"]


def test_a_session_in_a_sampling_knows_whose_samples_are(torch: Torch) -> None:
    memory.start()
    with bridge.profile(level=0) as session:
        allocate(torch, 1)
    allocate(torch, 1)
    memory.stop()
    allocate(torch, 1)
    assert len(memory.trace().splitlines()) == 2 + 2
    assert of_ops(session) == ["allocate"]


def test_a_sampling_in_a_session_goes_on_after_it(torch: Torch) -> None:
    with bridge.profile(level=0) as session:
        memory.start()
        allocate(torch, 1)
    allocate(torch, 1)
    assert len(memory.trace().splitlines()) == 2 + 2
    assert of_ops(session) == ["allocate"]
    memory.stop()
    allocate(torch, 1)
    assert len(memory.trace().splitlines()) == 2 + 2


def test_a_sampling_goes_on_while_a_session_pauses(torch: Torch) -> None:
    memory.start()
    with bridge.profile(level=0, sample_rate=2) as session:
        session.pause()
        allocate(torch, 1)
        session.resume()
        allocate(torch, 1)
    assert len(memory.trace().splitlines()) == 2 + 2
    assert set(of_ops(session)) == {"allocate", "(no op)"}
    assert len(session.report.capture.ranges) == 1


def test_a_range_that_is_open_when_sampling_ends_closes(torch: Torch) -> None:
    with bridge.profile(level=0) as session:
        memory.start()
        with nvtx_op("open"):
            memory.stop()
    assert session.report.capture.ranges.open.tolist() == [False]


def test_a_forked_child_has_its_own_samples(torch: Torch) -> None:
    memory.start()
    allocate(torch, 5000)
    child = os.fork()
    if not child:
        empty = memory.trace("cuda:0") == ""
        allocate(torch, 1)
        own = len(memory.trace("cuda:0").splitlines()) == 3
        os._exit(0 if empty and own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(memory.trace("cuda:0").splitlines()) == 3


def test_threads_may_scope_and_list_at_once(torch: Torch, tmp_path: Path) -> None:
    memory.start()
    torch.allocate(1)
    stop = threading.Event()

    def scopes_of_its_own() -> None:
        while not stop.is_set():
            with memory.scope("other"):
                release(torch.allocate(1))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=scopes_of_its_own)
    thread.start()
    try:
        for _ in range(100):
            memory.snapshot(tmp_path / "live.csv")
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_what_cannot_be_read_is_said_once_and_the_program_goes_on(torch: Torch) -> None:
    torch.cuda.memory_allocated = lambda _device: 1 / 0
    memory.start()
    with pytest.warns(RuntimeWarning, match="memory is no longer sampled: division by zero"):
        allocate(torch, 1)
    allocate(torch, 1)
    assert memory.trace("cuda:0") == ""


def test_an_interrupt_while_looking_leaves_ranges_lawful(torch: Torch) -> None:
    def interrupted(_device: int) -> int:
        raise KeyboardInterrupt

    recorder = Recorder()
    reason = emit.state.reason
    before = emit.use(recorder)
    try:
        memory.start()
        torch.cuda.memory_allocated = interrupted
        with pytest.raises(KeyboardInterrupt):
            allocate(torch, 1)
        memory.stop()
        assert recorder.all_closed()
    finally:
        emit.use(before, reason)


def test_many_threads_sample_at_once(torch: Torch) -> None:
    memory.start()
    threads = [
        threading.Thread(target=lambda: [allocate(torch, 1) for _ in range(200)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory.trace("cuda:0").splitlines()) == 1600 + 2
    assert memory.max_info("cuda:0").used == 1600 * 512


def test_pools_are_asked_before_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["bridge.annotate.memory.usage"], "thread_has_context", lambda: True
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", Runtime())
    assert uses()[1:] == [("cuda:1", 5 << 30, -1, "in use")]
    pool = SimpleNamespace(used_bytes=lambda: 10, total_bytes=lambda: 20)
    runtime = SimpleNamespace(getDevice=lambda: 3)
    cupy = SimpleNamespace(
        get_default_memory_pool=lambda: pool, cuda=SimpleNamespace(runtime=runtime)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert uses()[1:] == [("cuda:3", 10, 20, "allocated")]
    torch = Torch(devices=2)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert [use.device for use in uses()[1:]] == ["cuda:0", "cuda:1"]
    torch.initialized = False
    assert [use.device for use in uses()[1:]] == ["cuda:3"]


def test_a_gpu_that_fails_to_say_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["bridge.annotate.memory.usage"], "thread_has_context", lambda: True
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", Runtime(status=2))
    assert [use.device for use in uses()] == ["cpu"]
    monkeypatch.setattr(
        sys.modules["bridge.annotate.memory.usage"], "thread_has_context", lambda: False
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    assert [use.device for use in uses()] == ["cpu"]


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_what_is_alive_is_listed_by_scope(torch: Torch, tmp_path: Path) -> None:
    path = tmp_path / "live.csv"
    memory.start()
    before = torch.allocate(100)
    with memory.scope("net"):
        torch.allocate(600)
        with memory.scope('fc "1"'):
            torch.allocate(2000)
            gone = torch.allocate(50)
        torch.allocate(10)
        release(gone)
    release(before)
    with memory.scope("alone", append=False):
        again = torch.allocate(90)
    assert again is before  # at its address
    assert memory.snapshot(path) == 4
    head, *found = rows(path)
    assert head == ["Attribute Name", "Requested Size", "Device", "Actual Size", "Reuse?"]
    assert sorted(found) == [
        ["alone:", "90", "0", "512", "1"],
        ["net:", "10", "0", "512", "1"],
        ["net:", "600", "0", "1024", "1"],
        ['net:fc "1":', "2000", "0", "2048", "1"],
    ]


def test_the_first_allocation_of_a_segment_is_new_memory(torch: Torch, tmp_path: Path) -> None:
    memory.start()
    with memory.scope("first"):
        torch.allocate(5)
    memory.snapshot(tmp_path / "a.csv")
    assert rows(tmp_path / "a.csv")[1] == ["first:", "5", "0", "512", "0"]


def test_what_else_the_process_has_is_a_row(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SimpleNamespace(pid=os.getpid(), usedGpuMemory=10_000)
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda _gpu: None,
        nvmlDeviceGetComputeRunningProcesses=lambda _handle: [process],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    torch.allocate(600)
    assert scopes.snapshot_of_process(tmp_path / "gpu") == tmp_path / f"gpu-pid_{os.getpid()}.csv"
    assert rows(tmp_path / f"gpu-pid_{os.getpid()}.csv")[1:] == [
        ["<unk>:", "600", "0", "1024", "0"],
        ["nvml_amend", "8976", "0", "8976", "0"],
    ]


def test_without_a_gpu_no_file_is_written(tmp_path: Path) -> None:
    assert scopes.snapshot_of_process(tmp_path / "gpu") is None
    assert not list(tmp_path.iterdir())


def test_scopes_cost_no_look_while_nothing_samples(torch: Torch) -> None:
    torch.cuda.memory_snapshot = lambda: 1 / 0
    with memory.scope("a") as path:
        assert path == "a:"
    assert not sampling.is_running()
