"""One program, recorded by several versions of nsys: each export says it with the tables it has."""

import sqlite3
from contextlib import closing

import pytest
from join.plain_writer import write as plain
from made_reports import process, thread

from bridge.importers import load
from bridge.report import join

pytestmark = pytest.mark.slow


HARDWARE, VM = 56, 48  # the bits of a globalTid from which on these stand
HIGH = (0x80 << HARDWARE) - (1 << 64)  # a hardware id of 128: negative in a signed 64-bit number
ONE, OTHER = process(100), process(101)

# What the program did, with every column that some version has. Two processes call their GPU device 0.
NAMES = [
    "gemm",
    "void gemm<float>()",
    "_Z4gemm",
    "cudaLaunchKernel_v7000",
    "cudaGraphLaunch_v10000",
]
WHERE = {"deviceId": 0, "contextId": 1, "streamId": 7, "greenContextId": 0}
KERNEL = {**WHERE, "shortName": 1, "demangledName": 2, "mangledName": 3, "gridX": 8, "graphId": 9}
KERNEL |= {"clusterX": 1, "tensorSizeMinusOneElements": ""}
NODE = {"eventClass": 1, "nameId": 4, "globalTid": thread(100)}
ROWS = {
    "KERNEL": [
        {**KERNEL, "globalPid": ONE, "correlationId": 5, "start": 30, "end": 40},
        {**KERNEL, "globalPid": OTHER, "correlationId": 5, "start": 30, "end": 45, "greenContextId": 3},
        {**KERNEL, "globalPid": ONE, "correlationId": 6, "start": 50, "end": 60, "graphNodeId": 72},
    ],
    "MEMCPY": [
        {**WHERE, "globalPid": ONE, "correlationId": 0, "start": 41, "end": 43, "bytes": 4096,
         "copyKind": 11, "srcKind": 7, "dstKind": 7, "migrationCause": 2, "copyCount": 1},
    ],
    "RUNTIME": [
        {"globalTid": thread(100), "correlationId": 5, "start": 12, "end": 15, "nameId": 4},
        {"globalTid": thread(101), "correlationId": 5, "start": 12, "end": 15, "nameId": 4},
        {"globalTid": thread(100), "correlationId": 6, "start": 22, "end": 25, "nameId": 5},
        {"globalTid": thread(100), "correlationId": 6, "start": 23, "end": 24, "nameId": 5},
    ],
    "SYNCHRONIZATION": [
        {**WHERE, "globalPid": ONE, "correlationId": 7, "start": 61, "end": 69, "syncType": 4,
         "streamId": 2**32 - 1, "eventId": 2**32 - 1, "deprecatedSyncType": None, "eventSyncId": 0},
    ],
    "CUDA_EVENT": [
        {**WHERE, "globalPid": ONE, "correlationId": 6, "eventId": 2, "timestamp": 0, "eventSyncId": 1},
    ],
    "GRAPH_TRACE": [
        {**WHERE, "globalPid": OTHER, "correlationId": 8, "start": 70, "end": 80, "graphId": 9, "graphExecId": 4},
    ],
    "NVTX_EVENTS": [
        {"start": 10, "end": 20, "eventType": 59, "globalTid": thread(100), "text": "forward", "eventId": 11},
        {"start": 10, "end": 20, "eventType": 59, "globalTid": thread(101), "textId": 6, "eventId": 5},
        {"start": 21, "end": 29, "eventType": 59, "globalTid": thread(100), "text": "replay", "eventId": 7,
         "jsonText": "[1]"},
    ],
    "NODES": [
        {**NODE, "start": 13, "end": 14, "graphNodeId": 71, "originalGraphNodeId": None},
        {**NODE, "start": 16, "end": 17, "graphNodeId": 72, "originalGraphNodeId": 71},
    ],
    "GRAPHS": [{**NODE, "start": 18, "end": 19, "graphId": 9, "originalGraphId": None, "graphExecId": 4}],
    "StringIds": [{"id": n, "value": text} for n, text in enumerate([*NAMES, "elsewhere"], 1)],
    "TARGET_INFO_GPU": [
        {"id": 0, "cuDevice": 0, "name": "H100"}, {"id": 1, "cuDevice": 1, "name": "A100"},
    ],
    "TARGET_INFO_CUDA_DEVICE": [
        {"gpuId": 0, "cudaId": 0, "pid": 100}, {"gpuId": 1, "cudaId": 0, "pid": 101},
    ],
    "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "name": "CUDA_MEMCPY_KIND_HTOD", "label": "Host-to-Device"}],
}  # fmt: skip
ACTIVITY, GRAPH = "CUPTI_ACTIVITY_KIND_", "CUDA_GRAPH_"
EVERYWHERE = {
    "KERNEL": f"{ACTIVITY}KERNEL",
    "MEMCPY": f"{ACTIVITY}MEMCPY",
    "RUNTIME": f"{ACTIVITY}RUNTIME",
    "SYNCHRONIZATION": f"{ACTIVITY}SYNCHRONIZATION",
    "CUDA_EVENT": f"{ACTIVITY}CUDA_EVENT",
    "NVTX_EVENTS": "NVTX_EVENTS",
    "StringIds": "StringIds",
    "TARGET_INFO_GPU": "TARGET_INFO_GPU",
}
SINCE_3_24 = {
    "NODES": f"{GRAPH}NODE_EVENTS",
    "GRAPHS": f"{GRAPH}EVENTS",
    "GRAPH_TRACE": f"{ACTIVITY}GRAPH_TRACE",
    "TARGET_INFO_CUDA_DEVICE": "TARGET_INFO_CUDA_DEVICE",
}
ENUM = {"ENUM_CUDA_MEMCPY_OPER": "ENUM_CUDA_MEMCPY_OPER"}
LATER = {"greenContextId", "graphId", "clusterX", "tensorSizeMinusOneElements", "copyCount"}
LATER |= {"deprecatedSyncType", "eventSyncId", "timestamp", "eventId of ranges"}
TABLES = {
    "2.7.1": {**EVERYWHERE, "NODES": f"{GRAPH}EVENTS"},
    "3.0.0": {**EVERYWHERE, "NODES": f"{GRAPH}EVENTS", **ENUM},
    "3.24.0": {**EVERYWHERE, **SINCE_3_24, **ENUM},
    "3.28.1": {**EVERYWHERE, **SINCE_3_24, **ENUM},
}
LACKS = {
    "2.7.1": {*LATER, "mangledName"},
    "3.0.0": LATER,
    "3.24.0": {"tensorSizeMinusOneElements", "eventId of ranges"},
    "3.28.1": set(),
}
META = {"2.7.1": "EXPORT_META_DATA", "3.0.0": "EXPORT_META_DATA"}
VERSIONS = list(TABLES)


@pytest.fixture
def recorded(tmp_path):
    """Write the program's export as this version does, and load it."""

    def load_it(version):
        tables = {
            name: [] if kind in ENUM and version == "3.0.0" else _kept(kind, LACKS[version])
            for kind, name in TABLES[version].items()
        }
        pairs = {"EXPORT_PRODUCT_VERSION": f"made as {version}", "EXPORT_SCHEMA_VERSION": version}
        meta = [{"name": name, "value": value} for name, value in pairs.items()]
        path = plain(tmp_path / "r.sqlite", {**tables, META.get(version, "META_DATA_EXPORT"): meta})
        if version == "3.28.1":
            _keyed_by_event(path)
        return load(path)

    return load_it


def _kept(kind, lacks):
    own = {"eventId"} if kind == "NVTX_EVENTS" and "eventId of ranges" in lacks else set()
    gone = {column for column in lacks if kind != "GRAPHS"} | own
    return [{c: v for c, v in row.items() if c not in gone} for row in ROWS[kind]]


def _keyed_by_event(path):
    """Make eventId the key of NVTX_EVENTS: then rows lie in its order, not as they were written."""
    with closing(sqlite3.connect(path)) as export:
        [(made,)] = export.execute("SELECT sql FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
        keyed = made.replace('"eventId" INTEGER', '"eventId" INTEGER NOT NULL PRIMARY KEY')
        assert keyed != made
        export.execute("ALTER TABLE NVTX_EVENTS RENAME TO old")
        export.execute(keyed)
        export.execute("INSERT INTO NVTX_EVENTS SELECT * FROM old")
        export.execute("DROP TABLE old")
        export.commit()


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_are_said(recorded, version):
    facts = recorded(version).facts[0]
    assert (facts.product, facts.schema) == (f"made as {version}", version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_program_is_the_same_in_every_version(recorded, version):
    report = recorded(version)
    ranges = report.ranges.to_pandas().sort_values(["thread", "start"])
    columns = ["name", "start", "end", "thread", "json"]
    assert ranges[columns].values.tolist() == [
        ["forward", 10, 20, thread(100), ""],
        ["replay", 21, 29, thread(100), "[1]"],
        ["elsewhere", 10, 20, thread(101), ""],
    ]
    kernels = report.activities.take(report.activities.kind == "kernel")
    assert kernels["name"].tolist() == ["gemm"] * 3
    assert kernels["full_name"].tolist() == ["void gemm<float>()"] * 3
    assert kernels["graph_node"].tolist() == [-1, -1, 72]
    copies = report.activities.take(report.activities.kind == "memcpy")
    [copy] = copies.to_pandas().to_dict("records")
    assert (copy["name"], copy["correlation"]) == ("[CUDA memcpy Unified Host-to-Device]", 0)
    assert [copy[c] for c in ("source_kind", "target_kind", "migration_cause")] == [7, 7, 2]
    assert report.graph_nodes.to_pandas()[["node", "original", "time"]].values.tolist() == [
        [71, -1, 13], [72, 71, 16],
    ]  # fmt: skip
    assert report.launches["name"].tolist() == ["cudaLaunchKernel"] * 2 + ["cudaGraphLaunch"] * 2
    columns = ["kind", "start", "end", "stream", "event"]
    assert report.waits.to_pandas()[columns].values.tolist() == [
        ["context", 61, 69, -1, -1],
        ["event_record", 22, 25, 7, 2],  # the earliest of two calls of one id
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_are_led_back_in_every_version(recorded, version):
    report = recorded(version)
    found = join(report).op_kernels[report.activities["kind"] == "kernel"]
    assert found["launch"].tolist() == [0, 1, 2]
    assert found["op"].tolist()[:2] == ["forward", "elsewhere"]
    assert (found["reason"] == "").all()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_only_newer_versions_say(recorded, version):
    report = recorded(version)
    new = version in ("3.24.0", "3.28.1")
    kernels = report.activities.take(report.activities.kind == "kernel")
    assert kernels["green_context"].tolist() == ([-1, 3, -1] if new else [-1] * 3)
    assert kernels["graph"].tolist() == ([9] * 3 if new else [-1] * 3)
    mangled = "void gemm<float>()" if version == "2.7.1" else "_Z4gemm"
    assert kernels["mangled"].tolist() == [mangled] * 3
    graphs = report.activities.take(report.activities.kind == "graph")
    assert graphs["name"].tolist() == (["[CUDA graph 9]"] if new else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_two_processes_call_their_gpus_device_0(recorded, version):
    devices = (
        recorded(version).devices.to_pandas()[["process", "device", "gpu", "name"]].values.tolist()
    )
    other = [1, "A100"] if version in ("3.24.0", "3.28.1") else [0, "H100"]
    assert devices == [[ONE, 0, 0, "H100"], [OTHER, 0, *other]]


def test_one_pid_on_two_machines_is_two_processes(tmp_path):
    """Correlation ids, domains and devices of one mean nothing in the other."""
    machines = [HIGH | vm << VM | ONE for vm in (1, 2)]
    tables = {"NVTX_EVENTS": [], "StringIds": ROWS["StringIds"]}
    tables |= {f"{ACTIVITY}KERNEL": [], f"{ACTIVITY}RUNTIME": [], f"{ACTIVITY}CUDA_EVENT": []}
    for number, own in enumerate(machines):
        tid, name = own | 0xFFFFFF, f"op {number}"
        domain = {"start": 0, "eventType": 75, "globalTid": tid, "domainId": 1}
        tables["NVTX_EVENTS"] += [
            {**domain, "text": f"domain {number}"},
            {
                "start": 10,
                "end": 20,
                "eventType": 59,
                "globalTid": tid,
                "domainId": 1,
                "text": name,
            },
        ]
        call = {**ROWS["RUNTIME"][0], "globalTid": tid, "start": 12 + number}
        tables[f"{ACTIVITY}RUNTIME"].append(call)
        tables[f"{ACTIVITY}KERNEL"].append({**ROWS["KERNEL"][0], "globalPid": own})
        record = {**ROWS["CUDA_EVENT"][0], "globalPid": own, "correlationId": 5}
        tables[f"{ACTIVITY}CUDA_EVENT"].append(record)
    tables["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": gpu, "cudaId": 0, "pid": 100} for gpu in (0, 1)]
    report = load(plain(tmp_path / "r.sqlite", tables))
    assert all(own < 0 for own in machines)
    for frame in (report.ranges, report.launches, report.activities, report.waits, report.devices):
        assert frame["process"].tolist() == machines
    assert report.ranges["domain_name"].tolist() == ["domain 0", "domain 1"]
    assert report.waits["start"].tolist() == [12, 13]
    assert report.devices["gpu"].tolist() == [-1, -1]  # the export says which pid, not whose
    assert join(report).op_kernels["op"].tolist() == ["op 0", "op 1"]
