"""Real traces of six ages: every figure is that of a plain loop over the JSON."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from real_parts import NIGHT
from witness import kineto

import bridge
from bridge.importers.kineto.device import short_name
from bridge.importers.nsys import schema


@pytest.fixture(scope="module")
def traces(corpus):
    loaded = {}

    def trace(name):
        if name not in loaded:
            file = kineto.path(corpus, name)
            loaded[name] = bridge.load(file), kineto.events(file)
        return loaded[name]

    return trace


# On changes without one of two that differ in the number of workers that loaded data.
HERE = [name for name in kineto.NAMES if NIGHT or name != "resnet50-workers4"]
every = pytest.mark.parametrize("name", HERE)


def figures(table) -> dict[str, tuple[int, int, int, int]]:
    columns = ("kernel", "count", "total_ns", "min_ns", "max_ns")
    return {key: tuple(rest) for key, *rest in zip(*(table[c] for c in columns), strict=True)}


@pytest.mark.slow
@every
def test_kernels_per_name(name, traces):
    joined, events = traces(name)
    expected = kineto.totals(kineto.of(events, kineto.KERNELS))
    assert figures(joined.by("kernel", kernel_names="demangled")) == expected
    short = Counter()
    for kernel, (count, *_) in expected.items():
        short[short_name(kernel)] += count
    table = joined.by("kernel", kernel_names="short")
    assert dict(zip(*(table[c] for c in ("kernel", "count")), strict=True)) == short


@every
def test_copies_and_fills(name, traces):
    joined, events = traces(name)
    table = joined.by("memcpy")
    found = kineto.of(events, kineto.COPIES + kineto.FILLS)
    assert table["count"].sum() == len(found)
    assert table["total_ns"].sum() == sum(kineto.ns(e["dur"]) for e in found)
    assert table["bytes"].sum() == sum(e["args"]["bytes"] for e in found)
    fills = kineto.of(events, kineto.FILLS)
    assert table.loc[table["operation"] == "[CUDA memset]", "count"].sum() == len(fills)
    ways = Counter(e["name"].split()[1] for e in kineto.of(events, kineto.COPIES))
    for way, label in (("HtoD", "Host-to-Device"), ("DtoD", "Device-to-Device")):
        rows = table["operation"] == f"[CUDA memcpy {label}]"
        assert table.loc[rows, "count"].sum() == ways[way]


@pytest.mark.slow
@every
def test_events_are_where_and_when_they_were(name, traces):
    joined, events = traces(name)
    report = joined.capture
    first = report.facts[0].epoch_ns
    for table, categories in (("ranges", kineto.RANGES), ("launches", kineto.CALLS)):
        found, frame = kineto.of(events, categories), getattr(report, table)
        assert len(frame) == len(found) > 0
        assert (frame["start"] + first).tolist() == [kineto.ns(e["ts"]) for e in found]
        lengths = (frame["end"] - frame["start"]).tolist()
        assert lengths == [kineto.ns(e["dur"]) for e in found]
        assert (frame["process"] // 2**24).tolist() == [e["pid"] for e in found]
        assert frame["name"].tolist() == [e["name"] for e in found]
        numbers: dict[int, str] = {}  # a thread has one number, and a number one thread
        for number, event in zip((frame["thread"] % 2**24).tolist(), found, strict=True):
            assert numbers.setdefault(number, str(event["tid"])) == str(event["tid"])
            assert number == int(event["tid"]) or not 0 <= int(event["tid"]) < 1 << 24
        assert len(set(numbers.values())) == len(numbers)
    kernels = kineto.of(events, kineto.KERNELS)
    ran = report.activities.take(report.activities.kind == "kernel").to_pandas()
    for column, key in (("device", "device"), ("stream", "stream"), ("correlation", "correlation"),
                        ("registers", "registers per thread"), ("shared_dynamic", "shared memory")):  # fmt: skip
        assert ran[column].tolist() == [e["args"][key] for e in kernels]
    for what in ("grid", "block"):
        shape = ran[[f"{what}_{axis}" for axis in "xyz"]].to_numpy().tolist()
        assert shape == [e["args"][what] for e in kernels]
    assert set(report.activities["process"]) == set(report.launches["process"])


@pytest.mark.slow
@every
def test_device_times_per_op_are_those_of_containment(name, traces):
    joined, events = traces(name)
    kernels, own, total = kineto.device_times(events)
    table = joined.by("op").set_index("op")
    for column, expected in (("kernels", kernels), ("gpu_self_ns", own), ("gpu_total_ns", total)):
        found = {op: value for op, value in table[column].items() if value}
        assert found == {op: value for op, value in expected.items() if value}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in kineto.WITH_IDS if name in HERE])
def test_ops_of_kernels_are_those_of_the_profilers_own_ids(name, traces):
    joined, events = traces(name)
    op = {kineto.external(e): e["name"] for e in kineto.of(events, kineto.RANGES)}
    called = {e["args"]["correlation"] for e in kineto.of(events, kineto.CALLS)}
    work = [
        e for of in (kineto.KERNELS, kineto.COPIES, kineto.FILLS) for e in kineto.of(events, of)
    ]
    found = joined.op_kernels
    checked = Counter()
    for event, ours, reason in zip(work, found["op"].astype(object), found["reason"], strict=True):
        id_ = kineto.external(event)
        if event["args"]["correlation"] not in called:
            assert reason == "no_launch"
        elif id_ == 0:
            assert reason == "no_range"
        else:
            assert ours == op[id_]
            checked["op"] += 1
    assert checked["op"] > 5_000


@pytest.mark.slow
def test_backward_ops_lead_to_the_forward_ops_that_the_profilers_arrows_do(traces):
    """But those whose forward op lies in a range that the program called ``## backward ##``: its work counts as backward."""
    joined, events = traces("llm-ns-resolution")
    ends = {e["id"]: e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "f"}
    ranges, directions = joined.capture.ranges, joined.attributed.directions
    nodes = joined.attributed.attribution.nesting.first_nodes(len(ranges))
    path = joined.by("range").set_index(["thread", "start_ns"])["path"]
    where = np.column_stack((ranges.thread, ranges.start)).tolist()
    row = {(thread % 2**24, start): row for row, (thread, start) in enumerate(where)}
    found = Counter()
    for event in (e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "s"):
        forward, backward = (
            row[e["tid"], kineto.ns(e["ts"]) - joined.capture.facts[0].epoch_ns]
            for e in (event, ends[event["id"]])
        )
        called_so = "## backward ##" in path[tuple(where[forward])]
        found[called_so, directions.forward[nodes[backward]] == forward] += 1
    assert found == {(False, True): 880, (True, False): 25}


@pytest.mark.slow
def test_shapes_and_types_of_inputs(traces):
    joined, events = traces("sampled-rank0")
    table = joined.by("range", arguments=True).sort_values("start_ns", kind="stable")
    found = [e for e in kineto.of(events, kineto.RANGES) if "Input Dims" in e["args"]]
    shapes = Counter(str(e["args"]["Input Dims"]) for e in found if e["cat"] == "cpu_op")
    assert Counter(table["sizes"][table["sizes"] != ""]) == shapes
    types = Counter(str(e["args"]["Input type"]) for e in found if any(e["args"]["Input type"]))
    assert Counter(t.replace('"', "'") for t in table["dtypes"] if t) == types


def test_what_a_trace_says_of_its_gpu_and_its_run(traces):
    report = traces("alexnet")[0].capture
    [gpu] = report.devices.to_pandas().to_dict("records")
    assert (gpu["gpu"], gpu["name"], gpu["sm_count"]) == (0, "NVIDIA A100-PG509-200", 108)
    assert (gpu["warps_per_sm"], gpu["compute_major"], gpu["shared_per_sm"]) == (64, 8, 167_936)
    facts = traces("sampled-rank0")[0].capture.facts[0]
    assert facts.metadata == {"record_shapes": 1, "rank": 0, "world_size": 128, "backend": "nccl"}
    assert (facts.product, facts.schema) == ("PyTorch profiler", "1")


def test_waits_are_those_of_the_device(traces):
    joined, events = traces("alexnet")
    syncs = kineto.of(events, ("cuda_sync",))
    waits = joined.capture.waits
    kinds = {"Stream Sync": "stream", "Context Sync": "context", "Stream Wait Event": "stream_wait",
             "Event Sync": "event"}  # fmt: skip
    assert waits["kind"].tolist() == [kinds[e["args"]["cuda_sync_kind"]] for e in syncs]
    streams = [e["args"]["stream"] for e in syncs]
    assert waits["stream"].tolist() == [-1 if s == 2**32 - 1 else s for s in streams]
    assert waits["event"].tolist() == [e["args"].get("wait_on_cuda_event_id", -1) for e in syncs]
    assert joined.by("wait")["total_ns"].sum() == sum(kineto.ns(e["dur"]) for e in syncs)


# The kernels of each trace whose GPU is described, and how many of these Kineto gives no blocks: it assumes
# the 48 KiB of shared memory that a kernel has without asking for more, and these kernels asked for 67 584 bytes.
DESCRIBED = {"alexnet": (79, 6), "gpu-user-annotation": (130, 0), "llm-ns-resolution": (4_350, 0)}
UNDESCRIBED = {"resnet50-workers0", "resnet50-workers4", "sampled-rank0"}  # no multiprocessor count
SHARED_WITHOUT_ASKING = 48 << 10


@pytest.mark.slow
@every
def test_estimates_of_occupancy_are_kinetos(name, traces):
    """Kineto computes them with NVIDIA's cuda_occupancy.h, and writes per cent as whole numbers."""
    from bridge.analyze.cost.occupancy import Occupancy

    joined, events = traces(name)
    found = Occupancy.of(joined.attributed)
    if name in UNDESCRIBED:
        assert (joined.capture.devices.sm_count == -1).all()
        assert np.isnan(found.percent).all()
        return
    kernels = joined.capture.activities.kind == "kernel"
    columns = (found.blocks_per_sm, found.warps_per_sm, found.percent)
    without_blocks = 0
    for event, blocks, warps, percent in zip(
        kineto.of(events, kineto.KERNELS), *(c[kernels] for c in columns), strict=True
    ):
        args = event["args"]
        assert blocks == pytest.approx(float(args["blocks per SM"]), rel=1e-5)
        threads = args["block"][0] * args["block"][1] * args["block"][2]
        if threads % 32 == 0:  # else Kineto counts parts of warps
            assert warps == pytest.approx(float(args["warps per SM"]), rel=1e-5)
        kinetos = args["est. achieved occupancy %"]
        if kinetos == 0 and args["shared memory"] > SHARED_WITHOUT_ASKING:
            without_blocks += 1
        else:
            assert percent == pytest.approx(kinetos, abs=0.5 + 1e-6), args
    assert (int(kernels.sum()), without_blocks) == DESCRIBED[name]


NAMES = f"""
SELECT DISTINCT demangled.value, short.value FROM {schema.READ["kernels"].name}
JOIN StringIds demangled ON demangled.id = demangledName JOIN StringIds short ON short.id = shortName
"""


@pytest.mark.slow
def test_short_names_are_those_of_nsight_systems(corpus):
    pairs = {}
    for file in sorted((corpus / "nsys").glob("*.sqlite")):
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as export:
            tables = {name for (name,) in export.execute("SELECT name FROM sqlite_master")}
            if schema.READ["kernels"].name in tables:
                pairs |= dict(export.execute(NAMES))
    abbreviated = {full for full, short in pairs.items() if short.endswith("...")}
    assert all(full.startswith(pairs[full].rpartition("_")[0]) for full in abbreviated)
    assert len(pairs) - len(abbreviated) >= 360
    assert {f: short_name(f) for f in pairs if f not in abbreviated} == {
        full: short for full, short in pairs.items() if full not in abbreviated
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("void a::{lambda()#1}::operator()(int) const", "operator()"), ("(anonymous namespace)::f(int)", "f"),
        ("std::enable_if<(a > b), int>::type foo<3>(int)", "foo"), ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("f(", "f"), ("", ""), ("<>", "<>"), ("a<b", "a"), ("void ns::f<&g(int)>", "f"),
    ],
)  # fmt: skip
def test_short_names_of_odd_kernels(full, short):
    assert short_name(full) == short
