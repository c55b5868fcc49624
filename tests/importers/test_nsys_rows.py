"""What an export says in so many ways, row by row: names, domains, open ranges, payloads, identities."""

import pytest
from join.plain_writer import (
    CALLS,
    COPIES,
    FILLS,
    GRAPHS,
    KERNELS,
    NVTX,
    PID,
    SESSION,
    STRINGS,
    TID,
    changed,
    event,
    strings,
    write,
)
from read_once import reading_once

from bridge import importers
from bridge.importers import ReportError, frames, load
from bridge.join.options import AttributionOptions
from bridge.report import join

OTHER = 8 << 24
HIGH = -(1 << 60)  # a hardware id of 128 and up makes a globalTid negative


@pytest.fixture
def loaded(tmp_path):
    """Write an export and load it."""
    return lambda tables, **how: load(write(tmp_path / "r.sqlite", tables), **how)


def ranges(loaded, *events, texts=(), **more):
    return loaded({NVTX: list(events), STRINGS: strings(*texts), **more}).ranges


def kernel(start=30, end=40, **more):
    return {"start": start, "end": end, "globalPid": PID, "correlationId": 5, "deviceId": 0, **more}


# -- names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"text": "inline"}, "inline"),
        ({"textId": 2}, "second"),
        ({"text": "inline", "textId": 2}, "inline"),
        ({"text": None, "textId": 1}, "first"),
        ({"textId": 99}, "<unnamed>"),
        ({"text": None, "textId": None}, "<unnamed>"),
        ({"textId": "the name itself"}, "the name itself"),
        ({"text": "inline", "textId": "the name itself"}, "inline"),
        ({"text": "aten::mm, seq = 7, op_id = 40"}, "aten::mm"),
        ({"textId": 3}, "aten::add"),
        ({"text": "ü,(x)"}, "ü,(x)"),
        ({}, "<unnamed>"),
    ],
)
def test_a_name_is_where_one_is_written(loaded, columns, name):
    texts = ("first", "second", "aten::add, seq = 1")
    found = ranges(loaded, event(**columns), event(text="another", textId=1), texts=texts)
    assert found["name"].tolist() == [name, "another"]


@pytest.mark.slow
def test_names_in_every_place_at_once(loaded):
    rows = [
        {"textId": 9},
        {"textId": 2},
        {"text": "b"},
        {"textId": 1},
        {"textId": "c"},
        {"textId": 9},
        {"text": "a"},
    ]
    report = loaded({NVTX: [event(**row) for row in rows], STRINGS: strings("b", "a, seq = 1")})
    names = ["<unnamed>", "a", "b", "b", "c", "<unnamed>", "a"]
    assert report.ranges["name"].tolist() == names
    texts = ["<unnamed>", "a, seq = 1", "b", "b", "c", "<unnamed>", "a"]
    assert report.texts.decode(report.ranges["text"]) == texts


def test_without_a_table_of_strings_it_is_no_export(tmp_path):
    path = changed(write(tmp_path / "r.sqlite", {NVTX: [event(text="a")]}), f"DROP TABLE {STRINGS}")
    with pytest.raises(ReportError, match="not an Nsight Systems export"):
        load(path)


# -- domains and categories


@pytest.mark.slow
def test_a_domain_is_of_its_process(loaded):
    found = ranges(
        loaded,
        event(75, domainId=1, text="mine"),
        event(75, domainId=1, textId=1, globalTid=OTHER | 9),
        event(75, domainId=1, text="again"),
        event(domainId=1, globalTid=TID + 1),
        event(domainId=1, globalTid=OTHER | 9),
        event(domainId=0),
        event(domainId=2),
        event(domainId=None),
        texts=("theirs",),
    )
    assert found["domain_name"].tolist() == ["mine", "theirs", "", "", ""]
    assert found["domain"].tolist() == [1, 1, 0, 2, 0]


def test_a_category_is_of_its_domain_and_process(loaded):
    found = ranges(
        loaded,
        event(33, domainId=1, category=4, text="math"),
        event(33, domainId=0, category=4, textId=1),
        event(category=4, domainId=1),
        event(category=4, domainId=0),
        event(category=4, domainId=2),
        event(category=4, domainId=1, globalTid=OTHER | 9),
        event(category=0, domainId=0),
        event(category=None, domainId=0),
        texts=("I/O",),
    )
    assert found["category"].tolist() == ["math", "I/O", "4", "4", "", ""]


@pytest.mark.slow
def test_domains_of_libraries_hold_no_ops(loaded):
    report = loaded(
        {
            NVTX: [
                event(75, domainId=1, text="NCCL"),
                event(75, domainId=2, text="mine"),
                event(text="ncclAllReduce", domainId=1),
                event(text="ncclAllReduce", domainId=2),
                event(text="ncclAllReduce", domainId=3),
                event(text="ncclAllReduce", domainId=4),
                event(text="of mine", domainId=4),
                event(text="ncclAllReduce", domainId=0),
            ]
        }
    )
    assert (join(report).attributed.op >= 0).tolist() == [False, True, False, True, True, True]


# -- kinds and times


@pytest.mark.slow
def test_kinds_of_events(loaded):
    events = [event(kind, text=str(kind)) for kind in (33, 34, 39, 59, 60, 65, 70, 71, 75, 76)]
    report = loaded({NVTX: events})
    assert report.ranges["name"].tolist() == ["59", "60", "70", "71"]
    assert report.ranges["kind"].tolist() == ["push_pop", "start_end", "push_pop", "start_end"]
    assert report.marks["name"].tolist() == ["34", "65"]
    assert report.marks["time"].tolist() == [10, 10]


@pytest.mark.slow
def test_a_phase_is_of_the_thread_that_started_it_and_on_no_stack(loaded):
    phase = event(60, 0, 100, text="epoch", endGlobalTid=TID + 1)
    report = loaded(
        {
            NVTX: [phase],
            CALLS: [{"start": 50, "end": 51, "globalTid": TID, "correlationId": 5}],
            KERNELS: [kernel()],
        }
    )
    assert report.ranges["thread"].tolist() == [TID]
    strict = join(report, AttributionOptions(raw=True))
    assert strict.op_kernels["reason"].tolist() == ["no_range"]


OPEN = [
    event(start=5, end=None),
    event(start=7, end=60),
    event(start=8, end=59),
    event(60, start=9, end=61),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("duration", "is_open", "ends"),
    [
        (60, [True, True, False, True], [61, 60, 59, 61]),
        (100, [True, False, False, False], [100, 60, 59, 61]),
        (None, [True, False, False, False], [61, 60, 59, 61]),
    ],
)
def test_open_ranges_where_the_session_has_an_end(loaded, duration, is_open, ends):
    found = ranges(loaded, *OPEN, **{SESSION: [{"duration": duration}]})
    assert found["open"].tolist() == is_open
    assert found["end"].tolist() == ends


@pytest.mark.slow
def test_open_ranges_end_with_the_last_event_where_the_end_is_unknown(loaded):
    tables = {NVTX: [event(start=5, end=None), event(start=7, end=9)], KERNELS: [kernel(30, 45)]}
    report = loaded(tables)
    assert report.ranges["open"].tolist() == [True, False]
    assert report.ranges["end"].tolist() == [45, 9]
    assert report.facts[0].span == (5, 45)


def test_open_ranges_alone(loaded):
    found = ranges(loaded, event(start=5, end=None), event(start=-7, end=None))
    assert found["end"].tolist() == [5, 5]
    assert found["open"].all()


@pytest.mark.slow
def test_times_may_be_negative_or_zero(loaded):
    report = loaded(
        {
            NVTX: [event(start=-50, end=0, text="early")],
            CALLS: [{"start": -1, "end": 3, "globalTid": TID, "correlationId": 5}],
            KERNELS: [kernel(-9, -4), kernel(-9, 0), kernel(9, 4), kernel(9, None)],
        }
    )
    table = join(report).op_kernels
    assert table["reason"].tolist() == ["", "invalid_time", "invalid_time", "invalid_time"]
    assert join(report).totals["gpu_ns"] == 5


# -- payloads


@pytest.mark.slow
@pytest.mark.parametrize("column", ["int64Value", "uint64Value", "int32Value", "uint32Value"])
def test_a_payload_is_in_the_column_of_its_type(loaded, column):
    found = ranges(loaded, event(**{column: 7}), event(**{column: None}), event(**{column: 0}))
    assert found["payload"].tolist() == [7, -1, 0]


@pytest.mark.slow
def test_payloads_of_all_types_at_once(loaded):
    columns = ["int64Value", "uint64Value", "int32Value", "uint32Value", "doubleValue"]
    found = ranges(loaded, *(event(**{column: n}) for n, column in enumerate(columns, 1)))
    assert found["payload"].tolist() == [1, 2, 3, 4, -1]


# -- identities


@pytest.mark.slow
@pytest.mark.parametrize("process", [PID, HIGH | PID, 0xFFFFFF << 24])
def test_processes_and_threads_of_any_number(loaded, process):
    report = loaded(
        {
            NVTX: [event(text="a", globalTid=process | 0xFFFFFF)],
            CALLS: [{"start": 12, "end": 13, "globalTid": process | 0xFFFFFF, "correlationId": 5}],
            KERNELS: [kernel(globalPid=process), kernel(globalPid=process ^ 1 << 24)],
        }
    )
    assert report.ranges["process"].tolist() == report.launches["process"].tolist() == [process]
    assert join(report).op_kernels["reason"].tolist() == ["", "no_launch"]


@pytest.mark.slow
def test_a_kernel_without_process_is_of_the_only_one(loaded):
    rows = [kernel(), kernel(globalPid=None)]
    assert loaded({KERNELS: rows}).activities["process"].tolist() == [PID, PID]


@pytest.mark.slow
def test_a_kernel_without_process_is_of_none_if_there_are_two(loaded):
    rows = [kernel(), kernel(globalPid=None), kernel(globalPid=OTHER)]
    assert loaded({KERNELS: rows}).activities["process"].tolist() == [PID, -1, OTHER]


@pytest.mark.slow
def test_a_device_is_the_gpu_that_its_process_calls_so(loaded):
    report = loaded(
        {
            KERNELS: [
                kernel(),
                kernel(globalPid=OTHER),
                kernel(deviceId=1),
                kernel(globalPid=HIGH | OTHER),
            ],
            "TARGET_INFO_CUDA_DEVICE": [
                {"gpuId": 0, "cudaId": 0, "pid": 7},
                {"gpuId": 1, "cudaId": 0, "pid": 8},
            ],
            "TARGET_INFO_GPU": [
                {"id": 0, "cuDevice": 1, "name": "H100"},
                {"id": 1, "cuDevice": 0, "name": "A100"},
            ],
        }
    )
    keys = ["process", "device", "gpu", "name"]
    found = set(report.devices.to_pandas()[keys].itertuples(index=False, name=None))
    assert found == {
        (PID, 0, 0, "H100"),
        (OTHER, 0, 1, "A100"),
        (HIGH | OTHER, 0, 1, "A100"),
        (PID, 1, 0, "H100"),  # not said for this process: by the number of the device
    }


@pytest.mark.slow
def test_devices_of_exports_that_say_less(loaded, tmp_path):
    gpu = {"id": 3, "name": "V100"}
    found = loaded(
        {KERNELS: [kernel(deviceId=3), kernel(deviceId=4)], "TARGET_INFO_GPU": [gpu]}
    ).devices
    named = list(zip(found.device, found.gpu, found.name, strict=True))
    assert named == [(3, 3, "V100"), (4, -1, "")]
    bare = load(write(tmp_path / "bare.sqlite", {KERNELS: [kernel()]})).devices
    assert list(zip(bare.device, bare.gpu, bare.name, strict=True)) == [(0, -1, "")]


@pytest.mark.slow
def test_a_thread_has_its_name_of_highest_priority(loaded):
    rows = [("b", 1, 1), ("z", 2, 5), ("y", 2, 5), ("c", 3, 9)]
    named = [
        {"globalTid": TID + t, "nameId": n, "priority": p} for n, (_, t, p) in enumerate(rows, 1)
    ]
    named.append({"globalTid": TID + 2, "nameId": 1, "priority": 1})
    texts = [name for name, _, _ in rows]
    threads = loaded({"ThreadNames": named, STRINGS: strings(*texts), KERNELS: [kernel()]}).threads
    assert list(zip(threads.thread, threads.name, strict=True)) == [
        (TID + 1, "b"),
        (TID + 2, "y"),
        (TID + 3, "c"),
    ]


# -- tables and columns that are not there


@pytest.mark.slow
def test_only_what_an_event_cannot_do_without(loaded):
    found = ranges(loaded, {"start": 1, "eventType": 59})
    numbers = ("start", "end", "thread", "domain", "payload")
    assert [found[column].tolist() for column in numbers] == [[1], [1], [-1], [0], [-1]]
    names = ("name", "domain_name", "category")
    assert [found[column].tolist() for column in names] == [["<unnamed>"], [""], [""]]


@pytest.mark.parametrize("row", [{"end": 1, "eventType": 59}, {"start": 1, "end": 2}])
def test_a_schema_that_lacks_what_is_needed_is_unknown(loaded, row):
    with pytest.raises(ReportError, match=r"r\.sqlite: table NVTX_EVENTS has no column"):
        ranges(loaded, row)


@pytest.mark.slow
def test_only_a_kernel(loaded):
    report = loaded({KERNELS: [{"start": 1, "end": 4}]})
    assert report.activities.to_pandas()[
        ["process", "correlation", "device", "grid_x"]
    ].values.tolist() == [[-1] * 4]
    assert report.activities["name"].tolist() == ["<unnamed>"]
    assert join(report).totals["unattributed"] == {"no_launch": {"activities": 1, "gpu_ns": 3}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "empty", [CALLS, COPIES, FILLS, GRAPHS, NVTX, SESSION, "PROCESSES", "ThreadNames"]
)
def test_an_empty_table_is_as_good_as_none(loaded, empty):
    report = loaded({KERNELS: [kernel()], empty: []})
    assert len(report.activities) == 1
    assert join(report).totals["activities"] == 1


def test_nothing_at_all_is_an_error(loaded):
    with pytest.raises(ReportError, match="no ranges, no CUDA calls and no kernels"):
        loaded({KERNELS: [], NVTX: []})


def test_of_tables_with_a_version_the_newest_counts(loaded):
    tables = {
        NVTX: [],
        f"{NVTX}_V2": [event(text="2")],
        f"{NVTX}_V10": [event(text="10")],
        f"{NVTX}_V2x": [],
    }
    assert loaded(tables).ranges["name"].tolist() == ["10"]


@pytest.mark.slow
def test_all_that_runs_on_a_device_in_one_frame(loaded):
    report = loaded(
        {
            STRINGS: strings("gemm", "void gemm<float>()", "_Zgemm"),
            KERNELS: [
                kernel(shortName=1, demangledName=2, mangledName=3),
                kernel(shortName=1, demangledName=2, mangledName=None),
            ],
            COPIES: [kernel(bytes=8, copyKind=1), kernel(bytes=9, copyKind=77)],
            FILLS: [kernel(bytes=3)],
            GRAPHS: [kernel(graphId=6)],
        }
    ).activities
    copies = [
        "[CUDA memcpy Host-to-Device]",
        "[CUDA memcpy kind 77]",
        "[CUDA memset]",
        "[CUDA graph 6]",
    ]
    assert report["kind"].tolist() == ["kernel", "kernel", "memcpy", "memcpy", "memset", "graph"]
    assert report["name"].tolist() == ["gemm", "gemm", *copies]
    assert report["full_name"].tolist() == ["void gemm<float>()"] * 2 + copies
    assert report["mangled"].tolist() == ["_Zgemm", "void gemm<float>()", *copies]
    assert report["bytes"].tolist() == [-1, -1, 8, 9, 3, -1]


@pytest.mark.slow
def test_columns_of_nothing_in_a_table_of_many_rows(loaded):
    """The type of a column is told from its first rows; here those say nothing."""
    rows = [kernel(correlationId=None, streamId=None) for _ in range(70_000)] + [kernel(streamId=3)]
    found = loaded({KERNELS: rows}).activities
    assert found["correlation"].tolist() == [-1] * 70_000 + [5]
    assert found["stream"].tolist()[-2:] == [-1, 3]


def test_rows_come_in_the_order_of_rowids_whatever_the_gaps(tmp_path):
    path = write(tmp_path / "gaps.sqlite", {KERNELS: [kernel(n, n + 1) for n in range(1, 9)]})
    changed(
        path,
        f"UPDATE {KERNELS} SET rowid = -2000000 WHERE start = 3",
        f"UPDATE {KERNELS} SET rowid = 900000 WHERE start = 2",
        f"DELETE FROM {KERNELS} WHERE start = 5",
    )
    assert load(path).activities["start"].tolist() == [3, 1, 4, 6, 7, 8, 2]


# -- several reports


KINDS_OF_ROWS = {
    "ranges": {NVTX: [event(text="a", domainId=1), event(75, text="mine", domainId=1)]},
    "calls": {CALLS: [{"start": 12, "end": 13, "globalTid": TID, "correlationId": 5}]},
    "kernels": {KERNELS: [kernel()]},
    "copies": {KERNELS: [kernel()], COPIES: [kernel(bytes=3)]},
    "names": {
        KERNELS: [kernel()],
        "PROCESSES": [{"globalPid": PID, "name": "python"}],
        "ThreadNames": [{"globalTid": TID, "nameId": 1, "priority": 1}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "V100"}],
    },
}


@pytest.fixture(scope="module")
def two_of_each_kind(tmp_path_factory):
    """Write two reports of each kind, each of which is read once."""
    folder = tmp_path_factory.mktemp("kinds")
    with reading_once():
        yield {
            (kind, n): write(folder / f"{kind} {n}.sqlite", rows)
            for kind, rows in KINDS_OF_ROWS.items()
            for n in range(2)
        }


@pytest.mark.slow
@pytest.mark.parametrize("other", KINDS_OF_ROWS)
@pytest.mark.parametrize("one", KINDS_OF_ROWS)
def test_what_one_report_lacks_another_may_have(two_of_each_kind, one, other):
    paths = two_of_each_kind[one, 0], two_of_each_kind[other, 1]
    alone, together = [load(path) for path in paths], load(*paths)
    for frame in ("ranges", "launches", "activities", "threads", "processes", "devices"):
        assert len(getattr(together, frame)) == sum(len(getattr(report, frame)) for report in alone)
    assert together.activities["name"].tolist() == [n for r in alone for n in r.activities["name"]]
    assert together.texts.decode(together.ranges["text"]) == ["a"] * len(together.ranges)
    assert len(join(together).op_kernels) == len(together.activities)


@pytest.mark.slow
def test_what_is_known_of_a_gpu(tmp_path, corpus):
    devices = importers.load(corpus / "nsys" / "mnist-training.sqlite").devices
    [gpu] = devices.to_pandas().to_dict("records")
    assert gpu["name"] == "NVIDIA A100-SXM4-80GB"
    assert (gpu["sm_count"], gpu["warps_per_sm"], gpu["clock_hz"]) == (108, 64, 1_410_000_000)
    assert (gpu["compute_major"], gpu["compute_minor"]) == (8, 0)
    assert gpu["memory_bandwidth"] == 2_039_040_000_000
    nothing = importers.load(corpus / "nsys" / "pytorch-2gpu-before.sqlite").devices
    assert all((nothing[fact] == -1).all() for fact in frames.DEVICE_FACTS)
