"""The report that is made of spools: rows by a plain definition, clocks, the second witness."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import importers
from bridge.annotate.label import Label
from bridge.annotate.recording.sink import File
from bridge.annotate.recording.writer import Mark, Row, Writer
from bridge.capture.cupti import clock as clocks
from bridge.capture.cupti import export, records, spool, witness
from bridge.capture.tool import CaptureError

MS = 1_000_000
HOST, CUPTI = 5_000 * MS, 1_700_000_000_000 * MS  # where both clocks begin
DRIFT = 700  # ns that CUPTI's clock gains per second


class Made(spool.Spool):
    """A spool of a process that never ran; times are given in ns since the first pair of clocks."""

    def __init__(self, parent: Path, pid: int, *, late: int = 0) -> None:
        self.folder = parent / f"host-{pid}-{late}"
        self.folder.mkdir(parents=True)
        self.pid, self.late = pid, late
        self.begin("13.0", "libcupti.so")
        facts = f'{{"format": "bridge.cupti/1", "pid": {pid}, "host": "host", "program": "made.py", "cupti": "13.0"}}\n'
        (self.folder / spool.JOURNAL).write_text(facts, encoding="utf-8")
        self.note({"clocks": [self.pair(0), self.pair(1_000 * MS)]})
        self.note(
            {
                "names": {"7": "_Z7flood_bv", "9": "GPU of a test"},
                "calls": [[1, 307, "cuLaunchKernel"], [2, 211, "cudaLaunchKernel_v7000"]],
            }
        )

    def pair(self, since: int) -> tuple[int, int, int, int]:
        return self.cupti(since), HOST + self.late + since, CUPTI, 100

    def cupti(self, since: int) -> int:
        """Give CUPTI's time."""
        return CUPTI + 3 * self.pid * MS + since + since * DRIFT // (1_000 * MS)

    def put(self, kind: int, *rows: dict[str, int]) -> None:
        """Add records; start, end and time are in ns since the first pair of clocks."""
        made = np.zeros(len(rows), records.record_type(kind))
        for row, values in zip(made, rows, strict=True):
            for name, value in values.items():
                row[name] = self.cupti(value) if name in ("start", "end", "time") else value
        self.add(kind, made)


def report(folder: Path) -> Path:
    return export.write_report(folder, folder.parent / "made.sqlite", force=True)


def rows(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_a_kernel_has_all_its_columns(tmp_path):
    made = Made(tmp_path / "s", 40)
    made.put(records.KERNEL, {
        "start": 1000, "end": 3000, "device": 1, "context": 2, "stream": 7, "correlation": 5, "name": 7, "registers": 32,
        "grid_x": 4, "grid_y": 5, "grid_z": 6, "block_x": 1, "block_y": 2, "block_z": 3, "shared_static": 16,
        "shared_dynamic": 48,
    })  # fmt: skip
    columns = (
        "start, end, deviceId, contextId, streamId, correlationId, globalPid, registersPerThread, gridX, gridY, gridZ, blockX,"
        " blockY, blockZ, staticSharedMemory, dynamicSharedMemory, graphNodeId, graphId, s.value, d.value, m.value"
    )
    query = (
        f"SELECT {columns} FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds s ON s.id = shortName"
        " JOIN StringIds d ON d.id = demangledName JOIN StringIds m ON m.id = mangledName"
    )
    assert rows(report(tmp_path / "s"), query) == [
        (
            1000,
            3000,
            1,
            2,
            7,
            5,
            40 << 24,
            32,
            4,
            5,
            6,
            1,
            2,
            3,
            16,
            48,
            None,
            None,
            "flood_b",
            "flood_b()",
            "_Z7flood_bv",
        )
    ]


def test_a_node_of_a_graph_keeps_its_ids(tmp_path):
    made = Made(tmp_path / "s", 40)
    made.put(records.KERNEL, {"start": 1, "end": 2, "graph_node": 1 << 40, "graph": 3})
    made.add_rows(spool.NODES, [(made.cupti(0), 41, 6, -1), (made.cupti(5), 41, 1 << 40, 6)])
    path = report(tmp_path / "s")
    assert rows(path, "SELECT graphNodeId, graphId FROM CUPTI_ACTIVITY_KIND_KERNEL") == [
        (1 << 40, 3)
    ]
    columns = "start, globalTid, graphNodeId, originalGraphNodeId"
    thread = 40 << 24 | 41
    assert rows(path, f"SELECT {columns} FROM CUDA_GRAPH_NODE_EVENTS") == [
        (0, thread, 6, None),
        (5, thread, 1 << 40, 6),
    ]


def test_calls_of_the_driver_within_the_runtime_are_left_out(tmp_path):
    made = Made(tmp_path / "s", 40)
    made.put(records.RUNTIME, {"start": 10, "end": 90, "cbid": 211, "correlation": 1, "thread": 41})
    made.put(
        records.DRIVER,
        {"start": 20, "end": 80, "cbid": 307, "correlation": 1, "thread": 41},
        {"start": 100, "end": 180, "cbid": 307, "correlation": 2, "thread": 42},
        {"start": 200, "end": 280, "cbid": 9, "correlation": 3, "thread": 42},
    )
    query = "SELECT start, end, globalTid - 671088640, correlationId, value FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId"
    assert rows(report(tmp_path / "s"), query) == [
        (10, 90, 41, 1, "cudaLaunchKernel_v7000"), (100, 180, 42, 2, "cuLaunchKernel"), (200, 280, 42, 3, "call 9"),
    ]  # fmt: skip


def test_what_calls_returned_is_written(tmp_path):
    made = Made(tmp_path / "s", 40)
    call = {"cbid": 211, "thread": 41}
    made.put(
        records.RUNTIME,
        {**call, "start": 10, "end": 90, "correlation": 1},
        {**call, "start": 110, "end": 190, "correlation": 2, "result": 719},
    )
    query = "SELECT correlationId, returnValue FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start"
    assert rows(report(tmp_path / "s"), query) == [(1, 0), (2, 719)]


def test_kinds_of_memory_are_numbered_as_nsys_does(tmp_path):
    made = Made(tmp_path / "s", 40)
    made.put(
        records.MEMCPY,
        *(
            {"start": k, "end": k + 1, "copy_kind": 1, "source_kind": k, "target_kind": 3}
            for k in range(8)
        ),
    )
    made.put(
        records.PEER_COPY,
        {
            "start": 9,
            "end": 10,
            "copy_kind": 8,
            "source_kind": 3,
            "target_kind": 3,
            "correlation": 6,
        },
    )
    made.put(records.MEMSET, {"start": 1, "end": 2, "bytes": 4, "target_kind": 5})
    made.put(
        records.MEMORY,
        {"time": 5, "operation": 1, "kind": 3, "bytes": 8, "address": 1 << 47},
        {
            "time": 6,
            "operation": 2,
            "kind": 3,
            "bytes": 8,
            "address": 1 << 47,
            "pool": 64,
            "reserved": 512,
            "allocated": 8,
        },
    )
    path = report(tmp_path / "s")
    query = "SELECT copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"
    assert rows(path, query) == [(1, 7, 2), *((1, kind, 2) for kind in range(7)), (10, 2, 2)]
    assert rows(path, "SELECT memKind, bytes FROM CUPTI_ACTIVITY_KIND_MEMSET") == [(4, 4)]
    columns = "start, memoryOperationType, memKind, bytes, address, localMemoryPoolAddress, localMemoryPoolSize, localMemoryPoolUtilizedSize"
    assert rows(path, f"SELECT {columns} FROM CUDA_GPU_MEMORY_USAGE_EVENTS") == [
        (5, 0, 2, 8, 1 << 47, None, None, None), (6, 1, 2, 8, 1 << 47, 64, 512, 8),
    ]  # fmt: skip


def test_waits_overhead_and_devices(tmp_path):
    made = Made(tmp_path / "s", 40)
    made.put(records.CONTEXT, {"context": 3, "device": 1})
    made.put(
        records.DEVICE,
        {"gpu": 1, "name": 9, "clock_khz": 1000, "memory_bandwidth": 5, "sm_count": 132},
    )
    made.put(
        records.SYNCHRONIZATION,
        {
            "start": 5,
            "end": 9,
            "kind": 3,
            "context": 3,
            "stream": 7,
            "event": 2**32 - 1,
            "correlation": 2,
        },
    )
    made.put(records.CUDA_EVENT, {"context": 4, "stream": 7, "event": 1, "correlation": 3})
    made.put(
        records.OVERHEAD,
        {"start": 1, "end": 2, "kind": 3 << 16, "object_kind": 2, "thread": 44},
        {"start": 3, "end": 4, "kind": 77, "object_kind": 1},
    )
    path = report(tmp_path / "s")
    assert rows(
        path,
        "SELECT deviceId, contextId, streamId, eventId, syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    ) == [(1, 3, 7, 2**32 - 1, 3)]
    assert rows(
        path,
        "SELECT deviceId, contextId, eventId, correlationId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    ) == [(None, 4, 1, 3)]
    query = "SELECT start, globalTid, value FROM PROFILER_OVERHEAD JOIN StringIds ON id = nameId ORDER BY start"
    assert rows(path, query) == [(1, 40 << 24 | 44, "CUPTI resource"), (3, None, "Overhead")]
    assert rows(
        path, "SELECT id, name, clockRate, memoryBandwidth, smCount FROM TARGET_INFO_GPU"
    ) == [(1, "GPU of a test", 1_000_000, 5000, 132)]
    assert rows(path, "SELECT gpuId, cudaId, pid FROM TARGET_INFO_CUDA_DEVICE") == [(1, 1, 40)]


def test_processes_are_on_one_clock(tmp_path):
    for pid, late in ((40, 0), (50, 2 * MS)):
        Made(tmp_path / "s", pid, late=late).put(records.KERNEL, {"start": 10, "end": 20})
    query = "SELECT globalPid >> 24, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert rows(report(tmp_path / "s"), query) == [(40, 10, 20), (50, 2 * MS + 10, 2 * MS + 20)]


def test_a_record_that_was_cut_is_left_out(tmp_path):
    made = Made(tmp_path / "s", 40)
    made.put(records.KERNEL, {"start": 10, "end": 20})
    with (made.folder / f"{records.KERNEL}.bin").open("ab") as file:
        file.write(b"\x01" * 17)
    with (made.folder / spool.JOURNAL).open("ab") as file:
        file.write(b'{"clocks": [[1, 2')
    assert rows(report(tmp_path / "s"), "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(1,)]


def test_spools_without_a_process_are_no_report(tmp_path):
    with pytest.raises(CaptureError, match="recorded nothing"):
        report(tmp_path / "nowhere")


def test_ranges_marks_and_names_of_the_program(tmp_path):
    made = Made(tmp_path / "s", 40)
    writer = Writer(File(made.folder / spool.ANNOTATIONS))
    kind = Label("forward", "mine", "op", 0xFF00FF)
    writer.row(Row(kind, 0, 41, HOST + 100, HOST + 900, 7))
    writer.row(Row(Label("phase", None, None), 1, 42, HOST + 200, HOST + 2_000, 0))
    writer.row(Row(Label("open"), 0, 41, HOST + 300, -1, 0))
    writer.mark(Mark(Label("here", "mine", "note"), 41, HOST + 400, 5))
    writer.mark(Mark(Label("loss", None, "op"), 41, HOST + 500, 0.25))
    writer.thread(41, "main")
    writer.close()
    lines = (made.folder / spool.ANNOTATIONS).read_text(encoding="utf-8")
    (made.folder / spool.ANNOTATIONS).write_text(
        re.sub(r'"pid":\d+', '"pid":40', lines, count=1), encoding="utf-8"
    )
    path = report(tmp_path / "s")
    query = "SELECT start, end, eventType, globalTid, int64Value, doubleValue, color, value FROM NVTX_EVENTS JOIN StringIds ON id = textId WHERE eventType IN (34, 59, 60) ORDER BY start"
    bits = 40 << 24
    assert rows(path, query) == [
        (100, 900, 59, bits | 41, 7, None, 0xFF00FF, "forward"),
        (200, 2_000, 60, bits | 42, None, None, None, "phase"),
        (300, None, 59, bits | 41, None, None, None, "open"),
        (400, None, 34, bits | 41, 5, None, None, "here"),
        (500, None, 34, bits | 41, -1, 0.25, None, "loss"),
    ]
    loaded = importers.load(path)
    assert loaded.ranges.to_pandas().sort_values("start")["category"].astype(str).tolist() == [
        "op",
        "",
        "",
    ]
    assert loaded.ranges.to_pandas().sort_values("start")["domain_name"].astype(str).tolist() == [
        "mine",
        "",
        "",
    ]
    assert loaded.marks.category.tolist() == ["note", "op"]
    assert rows(path, "SELECT globalTid, value FROM ThreadNames JOIN StringIds ON id = nameId") == [
        (bits | 41, "main")
    ]
    assert rows(path, "SELECT duration FROM ANALYSIS_DETAILS") == [(2_000,)]


def test_what_the_driver_tells_of_a_gpu_completes_it(tmp_path):
    for pid, uuid in ((40, "aa"), (50, "bb"), (60, "aa"), (70, "cc")):
        told = {
            "gpu": 0, "name": "GPU", "uuid": uuid, "memory_bytes": 1 << 30, "clock_khz": 2_000, "memory_clock_khz": 1_000,
            "memory_bus_bits": 512, "threads_per_sm": 2_048, "warp_size": 32, "sm_count": 10,
        }  # fmt: skip
        Made(tmp_path / "s", pid).note({"gpus": [told]})
    path = report(tmp_path / "s")
    columns = "id, name, totalMemory, clockRate, memoryBandwidth, maxWarpsPerSm, smCount"
    facts = ("GPU", 1 << 30, 2_000_000, 1_000_000 * 2 * 64, 64, 10)
    assert rows(path, f"SELECT {columns} FROM TARGET_INFO_GPU") == [
        (0, *facts),
        (1, *facts),
        (2, *facts),
    ]
    assert rows(path, "SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE ORDER BY pid") == [
        (40, 0, 0),
        (50, 0, 1),
        (60, 0, 0),
        (70, 0, 2),
    ]
    assert rows(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME") == [(CUPTI,)]
    settings = rows(path, "SELECT name, value FROM META_DATA_CAPTURE")
    assert settings == [
        ("PROCESS_0:COLLECT_CUDA_TRACE", "true"),
        ("PROCESS_0:COLLECT_NVTX_TRACE", "true"),
    ]


@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.integers(-(10**5), 10**5)), min_size=1, max_size=6
    ),
    st.data(),
)
def test_clocks_agree_where_both_were_read_and_keep_the_order(steps, data):
    host = np.cumsum([step for step, _ in steps]) + HOST
    offset = np.cumsum(
        [min(drift, step // 2) if drift > 0 else -min(-drift, step // 2) for step, drift in steps]
    )
    cupti = host + CUPTI + offset
    process = spool.Process(
        Path(), clocks=[(int(c), int(h), 0, 1) for c, h in zip(cupti, host, strict=True)]
    )
    clock = clocks.Clock(process, int(host[0]))
    assert (clock.of_host(host) == clock.of_cupti(cupti)).all()
    assert clock.of_host(host[:1]).tolist() == [0]
    times = np.sort(data.draw(st.lists(st.integers(HOST, HOST + 10**10), max_size=20)))
    assert (np.diff(clock.of_host(times.astype(np.int64))) >= 0).all()


@st.composite
def nested_ranges(draw):
    """Draw ranges that nest on two threads, and calls at instants that no range begins or ends at."""
    ranges, calls = [], []
    for thread in (1, 2):
        time, open_ranges = 0, []
        for action in draw(st.lists(st.sampled_from(["push", "pop", "call"]), max_size=25)):
            time += 2
            if action == "push":
                open_ranges.append(len(ranges))
                ranges.append([thread, time, -1])
            elif action == "pop" and open_ranges:
                ranges[open_ranges.pop()][2] = time
            elif action == "call":
                calls.append((thread, time, open_ranges[-1] if open_ranges else -1))
        for row in open_ranges:
            ranges[row][2] = time + 2
    return ranges, calls


@given(nested_ranges(), st.integers(0, 3))
def test_the_witness_agrees_with_the_join_and_notices_what_does_not(made, wrong):
    ranges, calls = made
    noted = [(row, owner) for row, (_, _, owner) in enumerate(calls) if owner >= 0]
    notes = np.zeros(len(noted), records.record_type(records.EXTERNAL))
    for note, (call, owner) in zip(notes, noted, strict=True):
        note["correlation"], note["id"] = call + 1, owner + 1
    changed = [note for note in notes[:wrong] if len(ranges) > 1]
    for note in changed:
        note["id"] = note["id"] % len(ranges) + 1  # another range
    columns = np.array(ranges, np.int64).reshape(-1, 3).T
    ids = {
        "id": np.arange(1, len(ranges) + 1), "thread": columns[0], "start": columns[1] + 1,
    }  # fmt: skip
    every = (
        np.array([(n + 1, thread, time) for n, (thread, time, _) in enumerate(calls)], np.int64)
        .reshape(-1, 3)
        .T
    )
    result = witness.compare(
        notes,
        witness.Calls(*every),
        ids,
        witness.Ranges(columns[0], columns[1], columns[1], columns[2]),
    )
    assert result == (len(noted), len(noted) - len(changed))
