"""Cuspy's traces in the format of Perfetto: the same as its traces in JSON, and as others read them."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from command import bridge as command

import bridge
from bridge import importers
from bridge.importers import frames
from bridge.importers.capture import defects

DATA = Path(__file__).parent / "data"
TRACE, TWIN = DATA / "cuspy.pftrace", DATA / "cuspy.json.gz"
# What one format tells and the other does not: names of threads are those of Kineto, and of CUDA's calls.
DIFFERENT = {("threads", "name"), ("ranges", "json"), ("activities", "copy_kind"), ("activities", "source_kind"),
             ("activities", "target_kind"), ("activities", "name"), ("activities", "full_name"), ("activities", "mangled")}  # fmt: skip


@pytest.fixture(scope="module")
def trace():
    return importers.load(TRACE)


@pytest.fixture(scope="module")
def twin():
    return importers.load(TWIN)


@pytest.mark.slow
@pytest.mark.parametrize("kind", frames.FRAMES)
def test_it_is_read_as_the_same_trace_in_json(trace, twin, kind):
    one, other = getattr(trace, kind), getattr(twin, kind)
    assert len(one) == len(other)
    for name in one.types:
        if (kind, name) not in DIFFERENT:
            assert np.array_equal(plain(one[name]), plain(other[name])), name


def plain(column):
    return column.to_numpy() if isinstance(column, frames.Names) else column


@pytest.mark.slow
def test_texts_details_and_facts_are_the_same(trace, twin):
    texts = [c.texts.decode(c.ranges.text.tolist()) for c in (trace, twin)]
    assert texts[0] == texts[1]
    details = [[json.loads(text or "{}") for text in c.ranges.json] for c in (trace, twin)]
    assert details[0] == details[1]
    assert {"dtypes", "inputs", "strides"} <= {key for said in details[0] for key in said}
    for fact in ("product", "span", "epoch_ns"):
        assert getattr(trace.facts[0], fact) == getattr(twin.facts[0], fact)
    assert [*defects(trace)] == []


@pytest.mark.slow
def test_kernels_are_those_of_a_plain_loop_over_googles_classes(trace):
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    packets = pb.Trace.FromString(gzip.decompress(TRACE.read_bytes())).packet
    [interned] = [packet.interned_data for packet in packets if packet.HasField("interned_data")]
    stages = {entry.iid: entry.name for entry in interned.gpu_specifications}
    names = {entry.iid: entry.name for entry in interned.event_names}
    expected = []
    for packet in packets:
        event = packet.gpu_render_stage_event
        if packet.HasField("gpu_render_stage_event") and stages[event.stage_iid] == "Kernel":
            told = {extra.name: extra.value for extra in event.extra_data}
            graph = int(told.get("graph id", -1))
            node = graph << 32 | int(told.get("graph node id", 0)) if graph > 0 else -1
            grid = event.launch.grid_size
            expected.append(
                (names[event.name_iid], packet.timestamp, event.duration, int(told["stream id"]),
                 int(told["correlation"]), graph, node, grid.x, grid.y, grid.z)
            )  # fmt: skip
    work = trace.activities.take(trace.activities.kind == "kernel")
    zero = trace.facts[0].epoch_ns
    columns = (work.full_name, work.start + zero, work.end - work.start, work.stream, work.correlation,
               work.graph, work.graph_node, work.grid_x, work.grid_y, work.grid_z)  # fmt: skip
    assert len(expected) == 30
    assert [*zip(*(c.tolist() for c in columns), strict=True)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("path", [TRACE, TWIN], ids=["pftrace", "json"])
def test_callbacks_and_records_of_events_in_graphs(path):
    """What PyTorch's file says of them, in a plain loop; they add no time of a GPU."""
    with gzip.open(TWIN) as file:
        written = json.load(file)
    report, base = bridge.load(path), written["baseTimeNanoseconds"]
    expected = defaultdict(list)
    for event in written["traceEvents"]:
        if event.get("cat") in {"graph_host_node", "graph_event_node"}:
            start, args = base + round(event["ts"] * 1000), event["args"]
            node = args["graph id"] << 32 | args["graph node id"]
            expected[event["cat"]].append((start, start + round(event["dur"] * 1000), args.get("host fn"), node))  # fmt: skip
    capture = report.capture
    zero = capture.facts[0].epoch_ns
    for kind, table, name in (("graph_host_node", capture.ranges, "my_callback"), ("graph_event_node", capture.marks, "EventRecord")):  # fmt: skip
        rows = table.take(table.thread & frames.ID_BITS == frames.HOST_NODES_THREAD)
        start = rows["start" if kind == "graph_host_node" else "time"]
        end = rows.end if kind == "graph_host_node" else start
        node = [json.loads(text)["graph_node"] for text in rows.json]
        found = zip((start + zero).tolist(), (end + zero).tolist(), rows.name, node, strict=True)
        assert [*found] == [(a, b, name, n) for a, b, _, n in expected[kind]]
        assert len(rows) == 2
    work = capture.activities
    assert report.totals["gpu_ns"] == int((work.end - work.start).sum()) == 193_453
    op = report.by("op").set_index("op").loc["my_callback"]
    assert (op["calls"], op["kernels"], op["gpu_total_ns"]) == (2, 0, 0)
    assert capture.warnings == ()


@pytest.mark.slow
def test_perfettos_trace_processor_sees_the_same_times(trace, trace_processor):
    rows = trace_processor(TRACE).query("select name, count(*) as n, sum(dur) as ns from slice group by name")  # fmt: skip
    theirs = {row.name: (row.n, row.ns) for row in rows}
    ours: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    ranges = trace.ranges.take(trace.ranges.thread & frames.ID_BITS < frames.HOST_NODES_THREAD)
    kernels = trace.activities.take(trace.activities.kind == "kernel")
    for names, table in ((ranges.name, ranges), (trace.launches.name, trace.launches), (["Kernel"] * 30, kernels)):  # fmt: skip
        for name, ns in zip(names, (table.end - table.start).tolist(), strict=True):
            ours[name] = ours[name][0] + 1, ours[name][1] + ns
    assert len(ours) > 50
    assert {name: theirs[name] for name in ours} == ours


@pytest.mark.slow
def test_ops_of_kernels(trace):
    table = bridge.load(TRACE).by("op-kernel")
    found = {(op, kernel): n for op, kernel, n in zip(table["op"], table["kernel"], table["count"], strict=True)}  # fmt: skip
    assert found == {
        ("aten::add_", "add_"): 12, ("aten::mm", "ampere_sgemm_32x32"): 6, ("aten::addmm", "cutlass::gemm"): 4,
        ("attention", "node_1"): 2, ("attention (backward)", "node_2"): 2, ("qkv", "node_0"): 2,
    }  # fmt: skip


@pytest.mark.slow
def test_commands_read_it(folder):
    path = folder / "renamed.bin"  # known by its first packet
    path.write_bytes(TRACE.read_bytes())
    report = command("report", path, "--by", "kernel")
    assert (report.exit_code, "ampere_sgemm_32x32" in report.stdout) == (0, True)
    assert command("import", path).exit_code == 0
    assert "aten::mm" in command("report", "--by", "op").stdout
    assert command("trace", path, "-o", "t.json").exit_code == 0
    drawn = json.loads(Path("t.json").read_text())["traceEvents"]
    assert {"my_callback", "EventRecord"} <= {event["name"] for event in drawn}


@pytest.mark.slow
def test_it_may_be_unpacked(tmp_path, trace):
    path = tmp_path / "cuspy.pftrace"
    path.write_bytes(gzip.decompress(TRACE.read_bytes()))
    assert importers.load(path).activities.start.tolist() == trace.activities.start.tolist()
