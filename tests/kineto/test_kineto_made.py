"""Any lawful list of events: figures are those of the definitions, in whatever order the file has them."""

from __future__ import annotations

import json
import random

import made
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from witness import kineto

import bridge
from bridge import importers
from bridge.importers import frames

THREADS = (1, 2, "1890023232")
time = st.integers(0, 60_000)  # ns
threads = st.sampled_from(THREADS)
names = st.sampled_from(["aten::mm", "aten::add", "ProfilerStep#1", "ProfilerStep#2", "a, b"])


def us(ns: int) -> object:
    """Write a time in one of the ways that there are."""
    return ns // 1000 if ns % 3000 == 0 else f"{ns // 1000}.{ns % 1000:03d}"


@st.composite
def events(draw):
    found = []
    for _ in range(draw(st.integers(1, 12))):
        cat = draw(st.sampled_from(["cpu_op", "user_annotation", "Operator"]))
        start, length, tid = draw(time), draw(st.integers(0, 30_000)), draw(threads)
        found.append(made.event(cat, draw(names), us(start), us(length), tid=tid))
    for correlation in range(1, 1 + draw(st.integers(1, 12))):
        if draw(st.booleans()) or correlation == 1:
            found.append(made.call(us(draw(time)), us(10), correlation, tid=draw(threads)))
        make = draw(st.sampled_from([made.kernel, copy, fill]))
        found.append(
            make(f"k{draw(st.integers(0, 2))}", us(draw(time)), us(draw(time)), correlation)
        )
    return found


def copy(_name, ts, dur, correlation):
    return made.event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", ts, dur, pid=0, tid=7,
                      device=0, stream=7, correlation=correlation, bytes=8)  # fmt: skip


def fill(_name, ts, dur, correlation):
    return made.event("Memset", "Memset (Device)", ts, dur, pid=0, tid=7,
                      device=0, stream=7, correlation=correlation, bytes=8)  # fmt: skip


@pytest.mark.slow
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(events())
def test_every_figure_is_that_of_its_definition(tmp_path, found):
    path = made.write(tmp_path / "t.json", made.trace(found))
    joined, read = bridge.load(path), kineto.events(path)
    kernels, own, total = kineto.device_times(read)
    table = joined.by("op").set_index("op")
    for column, expected in (("kernels", kernels), ("gpu_self_ns", own), ("gpu_total_ns", total)):
        assert {op: n for op, n in table[column].items() if n} == {op: n for op, n in expected.items() if n}  # fmt: skip
    by_kernel = joined.by("kernel")
    assert {
        key: tuple(rest)
        for key, *rest in zip(*(by_kernel[c] for c in ("kernel", "count", "total_ns", "min_ns", "max_ns")), strict=True)
    } == kineto.totals(kineto.of(read, kineto.KERNELS))  # fmt: skip
    work = kineto.of(read, kineto.KERNELS + kineto.COPIES + kineto.FILLS)
    assert len(joined.op_kernels) == len(joined.capture.activities) == len(work)
    assert joined.totals["gpu_ns"] == sum(kineto.ns(e["dur"]) for e in work)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(events(), st.randoms(use_true_random=False))
def test_the_order_of_what_runs_on_devices_and_of_calls_is_of_no_matter(tmp_path, found, chance):
    tables = []
    host = [e for e in found if e["cat"] in kineto.RANGES]
    rest = [e for e in found if e["cat"] not in kineto.RANGES]
    for _ in range(2):
        path = made.write(tmp_path / "t.json", made.trace([*host, *rest]))
        joined = bridge.load(path)
        tables.append([joined.by(view) for view in ("op", "kernel", "memcpy", "op-kernel")])
        chance.shuffle(rest)
    for one, other in zip(*tables, strict=True):
        assert one.equals(other)


def test_a_base_time_says_when_it_was(tmp_path):
    base = 1_790_857_026_000_000_000
    content = made.trace(made.small(), baseTimeNanoseconds=base)
    report = importers.load(made.write(tmp_path / "t.json.gz", content))
    assert report.facts[0].epoch_ns == base + 9_500
    assert report.facts[0].span == (1_000, 91_000)
    [kernel] = report.activities.to_pandas().to_dict("records")
    assert (kernel["start"], kernel["end"]) == (50_500, 62_845)


@pytest.mark.slow
def test_texts_of_ops_are_those_of_pytorchs_own_ranges(tmp_path):
    path = made.write(tmp_path / "t.json", made.trace(made.small()))
    report = importers.load(path)
    assert report.texts.decode(report.ranges["text"]) == [
        "ProfilerStep#3",
        "aten::mm, seq = 7, op_id = 5, sizes = [[2, 3], [3, 4]]",
    ]
    assert report.ranges["name"].tolist() == ["ProfilerStep#3", "aten::mm"]
    assert report.ranges["category"].tolist() == ["user_annotation", "cpu_op"]
    [kernel] = report.activities.to_pandas().to_dict("records")
    assert (kernel["name"], kernel["full_name"]) == ("gemm", "void ns::gemm<float>(float*)")
    assert bridge.load(path).by("op")["op"].tolist() == ["aten::mm", "ProfilerStep"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "name", "source", "target"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "[CUDA memcpy Host-to-Device]", 0, 2),
        ("Memcpy DtoH (Device -> Pinned)", "[CUDA memcpy Device-to-Host]", 2, 1),
        ("Memcpy PtoP (Device -> Device)", "[CUDA memcpy Peer-to-Peer]", 2, 2),
        ("Memcpy DtoA (Managed Static -> Array)", "[CUDA memcpy Device-to-Array]", 6, 3),
        ("Memcpy HtoH (Unknown -> Odd)", "[CUDA memcpy Host-to-Host]", 7, 7),
        ("Memcpy HtoP", "[CUDA memcpy Unknown]", -1, -1),
        ("something", "[CUDA memcpy Unknown]", -1, -1),
    ],
)
def test_copies_are_named_as_nsight_systems_names_them(written, name, source, target, tmp_path):
    found = {**copy("", 5, 5, 1), "name": written}
    report = importers.load(made.write(tmp_path / "t.json", made.trace([found])))
    [row] = report.activities.to_pandas().to_dict("records")
    assert (row["name"], row["full_name"]) == (name, name)
    assert (row["source_kind"], row["target_kind"], row["bytes"]) == (source, target, 8)


@pytest.mark.slow
def test_python_functions_are_ops_only_if_asked_for(tmp_path):
    events = [
        *made.small(),
        made.event("python_function", "train.py(3): step", 15, 70),
        made.event("python_function", "nn.Module: Linear_0", 16, 60),
    ]
    path = made.write(tmp_path / "t.json", made.trace(events))
    assert bridge.load(path).op_kernels["path"].tolist() == ["ProfilerStep/nn.Module: Linear_0/aten::mm"]  # fmt: skip
    assert bridge.load(path).by("module")["module"].tolist()[0] == "Linear_0"
    asked = bridge.load(path, domains=["python_function"])
    assert asked.op_kernels["op"].tolist() == ["train.py(3): step"]
    everything = bridge.load(path, domains=["all"]).op_kernels["path"].tolist()
    assert everything == ["ProfilerStep/train.py(3): step/nn.Module: Linear_0/aten::mm"]


@pytest.mark.slow
def test_two_processes_and_their_devices(tmp_path):
    """As one of our own traces of two processes has them: numbers of devices and of calls apart."""
    events = [
        made.op("a", 1, 10, pid=100, tid=100), made.call(2, 1, 1, pid=100, tid=100), made.kernel("k", 5, 3, 1),
        made.op("b", 1, 10, pid=200, tid=200), made.call(2, 1, 2, pid=200, tid=200),
        made.kernel("k", 5, 4, 2, pid=1000), made.kernel("lost", 50, 4, 77, pid=1000), made.kernel("lost", 50, 4, 0, pid=5),
    ]  # fmt: skip
    properties = [{"id": 0, "name": "first"}, {"id": 1000, "name": "second"}]
    path = made.write(tmp_path / "t.json", made.trace(events, deviceProperties=properties))
    joined = bridge.load(path)
    process = [p // 2**24 if p >= 0 else p for p in joined.capture.activities.process.tolist()]
    assert process == [100, 200, 200, -1]
    assert joined.op_kernels["op"].tolist()[:2] == ["a", "b"]
    devices = joined.capture.devices.to_pandas().set_index("process")["name"]
    assert devices[100 * 2**24] == "first"
    assert devices[200 * 2**24] == "second"


def test_a_number_that_two_processes_gave_says_nothing(tmp_path):
    events = [
        made.call(2, 1, 1, pid=100), made.call(2, 1, 1, pid=200), made.call(2, 1, 2, pid=200),
        made.kernel("of both", 5, 3, 1, pid=3), made.kernel("of both", 5, 3, 1, pid=4), made.kernel("known", 5, 3, 2, pid=4),
    ]  # fmt: skip
    report = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert [p // 2**24 for p in report.activities["process"].tolist()] == [-1, 200, 200]


def test_kernels_of_graphs_have_names_among_their_arguments(tmp_path):
    """As Cuspy writes them: with the lower half of the id of a node, which may be 0."""
    at = {"graph_id": 3}
    events = [
        *made.small(),
        made.kernel("k", 65, 2, 9, **at, graph_node_id=0, name="qkv", module="layers.0"),
        made.kernel(
            "k", 68, 4, 9, **at, graph_node_id=1, name="attention", autograd_phase="backward"
        ),
        made.kernel("k", 75, 8, 9, **at, graph_node_id=2),
        made.kernel("k", 85, 16, 9, name="of no graph"),
    ]
    report = bridge.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert report.capture.activities.graph_node[1:].tolist() == [
        3 << 32,
        3 << 32 | 1,
        3 << 32 | 2,
        -1,
    ]
    table = report.by("op,module")
    rows = zip(table["op"], table["module"], table["gpu_self_ns"], strict=True)
    time = {(op, module): ns for op, module, ns in rows}
    assert time["qkv", "layers.0"] == 2_000
    assert time["attention (backward)", "(no module)"] == 4_000
    assert "of no graph" not in table["op"].tolist()


def test_copies_memsets_and_lanes_of_cuspy(tmp_path):
    """It calls all copies alike and tells the rest as arguments; work of a graph may be moved to another lane."""
    copied = {"copy_kind": "HtoD", "src_kind": "pageable", "dst_kind": "device"}
    at = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    moved = made.kernel("k", 65, 2, 9, graph_id=3, graph_node_id=1, stream=900)
    moved["args"]["original_stream"] = 26
    events = [
        *made.small(), moved,
        made.event("gpu_memcpy", "Memcpy", 70, 1, **at, **copied),
        made.event("gpu_memcpy", "Memcpy", 72, 1, **at, **copied | {"copy_kind": 77, "src_kind": 88}),
        made.event("gpu_memset", "Memset", 74, 1, **at, memory_kind=3),
        made.event("gpu_memset", "Memset", 76, 1, **at, memory_kind=0),
    ]  # fmt: skip
    work = importers.load(made.write(tmp_path / "t.json", made.trace(events))).activities
    assert work.stream.tolist()[1] == 26
    assert work.name.tolist()[2:4] == ["[CUDA memcpy Host-to-Device]", "[CUDA memcpy Unknown]"]
    kinds = zip(work.source_kind.tolist(), work.target_kind.tolist(), strict=True)
    pageable, device, unknown = (frames.MEMORY_KINDS.index(kind) for kind in ("pageable", "device", "unknown"))  # fmt: skip
    assert [*kinds][2:] == [(pageable, device), (-1, -1), (-1, device), (-1, unknown)]


def test_callbacks_in_graphs_are_of_no_thread_of_the_program(tmp_path):
    """They adopt no work of autograd, are no steps, and have a name even where none was recorded."""
    at = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "graph_id": 3}
    names = {"ph": "M", "name": "thread_name", "pid": made.PID, "tid": 77, "args": {"name": "pt_autograd_0"}}  # fmt: skip
    host = [made.event("graph_host_node", "HostNode", 5 * n, 4, **at, graph_node_id=n) for n in range(1, 30)]  # fmt: skip
    host[7]["args"]["host fn"] = "std::function<void ()>::call"
    events = [
        names, *host, made.event("user_annotation", "loss.backward", 10, 90), made.call(31, 5, 4, tid=77),
        made.kernel("of_autograd", 60, 12, 4), made.event("graph_event_node", "EventRecord", 70, 0, **at, graph_node_id=0),
    ]  # fmt: skip
    report = bridge.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert report.op_kernels["op"].tolist() == ["loss.backward"]
    by_op = report.by("op").set_index("op")["calls"].to_dict()
    assert by_op == {"loss.backward": 1, "HostNode": 28, "std::function<void ()>::call": 1}
    assert report.totals["gpu_ns"] == 12_000
    assert not len(report.by("step"))
    assert report.capture.marks.json.tolist() == [json.dumps({"graph": 3, "graph_node": 3 << 32})]


def test_callbacks_of_a_trace_without_a_host(tmp_path):
    at = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "graph_id": 3, "graph_node_id": 1}
    events = [made.kernel("k", 10, 5, 0), made.event("graph_host_node", "HostNode", 20, 30, **at)]
    capture = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert capture.ranges.thread.tolist() == [frames.HOST_NODES_THREAD]
    assert capture.facts[0].span == (1_000, 41_000)


def test_graphs_and_events(tmp_path):
    events = [
        *made.small(),
        made.kernel("in a graph", 65, 2, 9, graph_id=3, graph_node_id=2**33),
        made.kernel("in none", 68, 2, 9, graph_id=0, graph_node_id=0),
        made.kernel("[CUDA graph 3]", 70, 2, 9),
        made.event("cuda_event", "record", 70, 1, pid=0, tid=7, device=0, stream=7, event_id=4),
        made.event("cuda_sync", "Odd Sync", 70, 1, pid=0, tid=7, device=0, cuda_sync_kind="Odd"),
    ]
    report = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    table = (
        report.activities.to_pandas()[["kind", "name", "graph", "graph_node"]].to_numpy().tolist()
    )
    assert table[1:] == [
        ["kernel", "graph", 3, 2**33],
        ["kernel", "none", -1, -1],
        ["graph", "[CUDA graph 3]", -1, -1],
    ]
    assert report.waits.to_pandas()[["kind", "event"]].to_numpy().tolist() == [["unknown", -1], ["event_record", 4]]  # fmt: skip


@pytest.mark.slow
def test_what_holds_nothing_for_us_is_passed_over_without_a_word(tmp_path):
    idle = [
        made.event("gpu_user_annotation", "ProfilerStep#3", 10, 90, pid=0, tid=7), made.event("Trace", "PyTorch Profiler (0)", 1, 99, pid="Spans"),
        {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "t", "ts": 1},
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {}},
        {"ph": "s", "id": 9, "pid": 1, "tid": 1, "ts": 30, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 9, "pid": 0, "tid": 7, "ts": 60, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 0, "ts": 1, "args": {"sort_index": 5}},
    ]  # fmt: skip
    reports = [
        importers.load(made.write(tmp_path / "t.json", made.trace(content)))
        for content in ([*made.small(), *idle], made.small())
    ]
    assert [report.warnings for report in reports] == [(), ()]
    assert json.dumps([len(r.ranges) for r in reports]) == "[2, 2]"
    assert reports[0].activities.to_pandas().equals(reports[1].activities.to_pandas())


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_a_large_trace_is_read_in_the_time_of_its_json(tmp_path):
    """Reading takes no more than ten times what parsing does (a change of kind); measured it is twice."""
    from time import process_time

    chance = random.Random(5)
    events = []
    for n in range(10_000):
        at = 10 * n
        events += [
            made.op("aten::mm", f"{at}.125", "8.500", External_id=n + 1, Input_Dims=[[chance.randrange(9), 3]]),
            made.call(f"{at + 1}.125", "2.500", n + 1), made.kernel("gemm", f"{at + 4}.125", "3.500", n + 1),
        ]  # fmt: skip
    path = made.write(tmp_path / "t.json", made.trace(events))
    best = [1e9, 1e9]
    for _ in range(3):
        for which, job in enumerate((lambda: json.loads(path.read_bytes()), lambda: importers.load(path))):  # fmt: skip
            began = process_time()
            job()
            best[which] = min(best[which], process_time() - began)
    assert best[1] < 10 * best[0]
