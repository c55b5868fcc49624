"""Traces of other profilers: what each producer's events become, and that all commands read them."""

from __future__ import annotations

import gzip
import json

import made_chrome as made
import numpy as np
import pytest
from command import bridge as command
from hypothesis import given
from hypothesis import strategies as st

import bridge
from bridge import importers
from bridge.importers.chrome.events import NESTED_ENDS, TraceEvents, pairs
from bridge.importers.chrome.producers import UNKNOWN, producer_of, producers

PRODUCTS = {
    "mxnet": "MXNet profiler",
    "megengine": "MegEngine profiler",
    "raf": "RAF profiler",
    "tvm": "TVM debug executor",
    "tensorflow": "TensorFlow profiler",
    "timeline": "TensorFlow timeline",
    "unknown": "Chrome trace",
}


@pytest.fixture
def load(tmp_path):
    def read(content):
        return bridge.load(made.write(tmp_path / "trace.json", content))

    return read


def ranges(report):
    """List name, start, length and kind of each range; times in µs from the first event."""
    r = report.capture.ranges
    return [
        (name, (start - 1000) / 1000, (end - start) / 1000, kind)
        for name, start, end, kind in zip(r["name"], r["start"], r["end"], r["kind"], strict=True)
    ]


def work(report):
    """List name, kind, device, stream, start and length of each activity, and its op."""
    a, op = report.capture.activities, report.op_kernels["op"].astype(object)
    return [
        (name, kind, device, stream, (start - 1000) / 1000, (end - start) / 1000, owner if isinstance(owner, str) else None)
        for name, kind, device, stream, start, end, owner in zip(
            a["name"], a["kind"], a["device"], a["stream"], a["start"], a["end"], op, strict=True
        )
    ]  # fmt: skip


@pytest.mark.parametrize("name", made.ALL)
def test_the_producer_is_known_by_the_content(name, tmp_path):
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps(made.ALL[name]()).encode()))
    assert importers.load(path).facts[0].product == PRODUCTS[name]


def test_mxnet(load):
    report = load(made.mxnet())
    assert ranges(report) == [
        ("batch", 0, 116, "start_end"),
        ("load", 1, 10, "push_pop"),
        ("MXImperativeInvokeEx", 2, 3, "push_pop"),
        ("FullyConnected", 16, 40, "push_pop"),
        ("Activation", 56, 15, "push_pop"),
        ("FullyConnected", 76, 30, "push_pop"),
    ]
    capture = report.capture
    assert len(set(capture.ranges.process)) == 1
    assert len(set(capture.ranges.thread)) == 2  # hashes of 64 bits stay apart
    devices = [json.loads(text)["device"] for text in capture.ranges.json[3:]]
    assert devices == ["gpu/0", "gpu/0", "cpu/0"]
    marks = dict(zip(capture.marks.name, capture.marks.payload, strict=True))
    assert marks == {"saved": -1, "counter:samples": 128}
    assert [w.partition(": ")[2] for w in report.capture.warnings] == ["MXNet profiler: host times alone, no kernels"]  # fmt: skip


def test_megengine(load):
    report = load(made.megengine())
    assert [name for name, *_ in ranges(report)] == [
        "forward", "OpDispatch", "MatrixMul", "Input", "ReGen", "MatrixMul", "AutoEvict",
    ]  # fmt: skip
    assert work(report) == [
        ("[CUDA memcpy Host-to-Device]", "memcpy", 0, 0, 10, 2.5, None),
        ("MatrixMul", "kernel", 0, 0, 35, 6.5, "MatrixMul"),
        ("MatrixMul", "kernel", 0, 0, 54, 6, "MatrixMul"),
    ]
    assert report.capture.facts[0].epoch_ns == 1_700_000_000_000_000_000 + 9_000
    assert {"channel", "worker"} <= set(report.capture.threads.name)


def test_kernels_of_cupti_stand_for_the_ops_on_the_device(load):
    report = load(made.megengine(cupti=True))
    assert work(report) == [("sgemm_128x64_nn", "kernel", 0, -1, 36, 4, "MatrixMul")]
    assert "sgemm_128x64_nn" not in [name for name, *_ in ranges(report)]


def test_raf(load):
    report = load(made.raf())
    assert ranges(report) == [("InferType", 0, 5, "push_pop")]
    assert work(report) == [
        ("raf.op.dense", "kernel", 0, -1, 10, 40, None),
        ("raf.op.relu", "kernel", 0, 1, 50, 10, None),
    ]


def test_tvm(load):
    report = load(made.tvm())
    assert [(start, length) for _, start, length, _ in ranges(report)] == [(0, 12.5), (12.5, 1.75)]
    assert "mean time of its runs" in report.capture.warnings[1]


def test_tensorflow(load):
    report = load(made.tensorflow())
    assert work(report) == [
        ("volta_sgemm_128x64_nn", "kernel", 0, 14, 40, 100.5, "model/dense/MatMul:MatMul"),
        ("[CUDA memcpy Host-to-Device]", "memcpy", 0, 13, 6, 2, "train 3"),
    ]
    kernel, copy = report.capture.activities.to_pandas().to_dict("records")
    assert [kernel[c] for c in ("registers", "shared_dynamic", "grid_x", "grid_y", "block_x")] == [32, 1024, 80, 2, 256]  # fmt: skip
    assert copy["bytes"] == 4096


def test_the_timeline_of_tensorflow_counts_no_kernel_twice(load):
    assert work(load(made.tensorflow_timeline())) == [
        ("Conv2D", "kernel", 0, 22, 60, 400, "Conv2D"),
        ("[CUDA memcpy Host-to-Device]", "memcpy", 0, 22, 0, 8, None),
    ]


def test_an_unknown_producer_gives_ranges_and_one_line(load):
    report = load(made.unknown())
    assert ranges(report) == [
        ("outer", 0, 10, "push_pop"),
        ("inner", 0.5, 4.25, "push_pop"),
        ("request", 1.5, 6, "start_end"),
    ]
    assert len(report.capture.warnings) == 1
    assert "a program that bridge does not know" in report.capture.warnings[0]


def test_what_is_invalid_is_counted(load):
    events = [
        {"name": "a", "ph": "X", "ts": 1, "dur": -1},
        {"name": "b", "ph": "X", "ts": "soon", "dur": 1},
        {"name": "c", "ph": "E", "ts": 4},
        {"name": "d", "ph": "X", "ts": 1, "dur": 1, "pid": {}},
        {"name": "open", "ph": "B", "ts": 2, "pid": 1, "tid": 1},
        {"name": "e", "ph": "X", "ts": 3, "dur": 5, "pid": 1, "tid": 1},
        "f",
        {},
    ]
    report = load({"traceEvents": events})
    assert "5 events left out" in report.capture.warnings[1]
    assert ranges(report) == [("open", 0, 6, "push_pop"), ("e", 1, 5, "push_pop")]
    assert list(report.capture.ranges.open) == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mxnet", "megengine", "raf", "tensorflow"])
def test_commands_read_them(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.write(tmp_path / "t.json", made.ALL[name]())
    lines = (
        "report t.json", "import t.json", "report --run 1", "trace t.json -o t.pftrace",
        "html t.json -o t.html", "summary t.json",
    )  # fmt: skip
    for line in lines:
        done = command(*line.split())
        assert done.exit_code == 0, done.output


def test_every_producer_has_its_own_traces():
    for name, product in PRODUCTS.items():
        content = made.ALL[name]()
        head, events = (
            ({}, content) if isinstance(content, list) else (content, content["traceEvents"])
        )
        trace = TraceEvents.of(events)
        fits = [producer.name for producer in producers() if producer.sign.fit(head, trace)]
        assert fits == ([] if name == "unknown" else [product])
        assert (producer_of(head, trace) is UNKNOWN) == (name == "unknown")


def brute_pairs(keys, is_end):
    """Pair each end with the last begin of its key that has no end, one event after another."""
    open_: dict[int, list[int]] = {}
    found = []
    for row, (key, end) in enumerate(zip(keys, is_end, strict=True)):
        stack = open_.setdefault(key, [])
        if not end:
            stack.append(row)
        elif stack:
            found.append((stack.pop(), row))
    return sorted(found)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_begins_and_ends_are_paired_as_by_a_stack(events):
    keys = np.array([key for key, _ in events], np.int64)
    is_end = np.array([end for _, end in events], bool)
    begin, end = pairs(keys, is_end)
    assert sorted(zip(begin.tolist(), end.tolist(), strict=True)) == brute_pairs(keys, is_end)


def test_pairs_that_are_written_when_they_end():
    """MXNet writes an inner pair before the pair around it."""
    both = {"pid": 1, "tid": 1}
    events = [
        {"name": name, "ph": ph, "ts": ts, **both}
        for name, ph, ts in (("in", "B", 2), ("in", "E", 3), ("in", "B", 3), ("in", "E", 4), ("out", "B", 1), ("out", "E", 5))
    ]  # fmt: skip
    slices = TraceEvents.of(events).slices
    assert [(n, int(s), int(e)) for n, s, e in zip(slices.name, slices.start, slices.end, strict=True)] == [
        ("in", 2000, 3000), ("in", 3000, 4000), ("out", 1000, 5000),
    ]  # fmt: skip
    assert set(NESTED_ENDS) == {"B", "E"}


ODD = (
    None,
    True,
    -1,
    2**70,
    10**400,
    "x",
    "",
    "1e9999",
    1.5,
    [],
    {},
    [1],
    {"a": 1},
    "\ud800",
    "\0",
)
KEYS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "args", "scope", "s", "bp")


@pytest.mark.slow
@given(
    st.sampled_from(sorted(made.ALL)),
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(KEYS), st.sampled_from(ODD)), max_size=8
    ),
)
def test_damaged_traces_are_errors_or_reports(tmp_path_factory, name, changes):
    content = made.ALL[name]()
    events = content if isinstance(content, list) else content["traceEvents"]
    for at, key, value in changes:
        events[at % len(events)][key] = value
    if isinstance(content, dict):
        content["metadata"] = {"localTime": changes[0][2]} if changes else content.get("metadata")
    path = made.write(tmp_path_factory.mktemp("t") / "t.json", content)
    try:
        report = bridge.load(path)
    except importers.ReportError as error:
        message = str(error)
    else:
        assert len(report.op_kernels) == len(report.capture.activities)
        report.by("op")
        message = ""
    assert "\n" not in message
