"""What is no trace gets one clear line; an event that makes no sense is left out and counted."""

from __future__ import annotations

import gzip
import json

import made
import pytest
from command import assert_refused, bridge, refused
from read_once import reading_once

from bridge import importers

GOOD = json.dumps(made.trace(made.small())).encode()
BAD = {
    "cut off": (GOOD[:-20], "cut off or damaged"),
    "no events": ({"schemaVersion": 1}, "no trace of a profiler"),
    "events that are no list": (made.trace({"a": 1}), "no trace of a profiler"),
    "no event": (made.trace([]), "no ops, no CUDA calls and no kernels"),
    "only names": (made.trace([{"ph": "M", "name": "process_name", "pid": 1}]), "no ops"),
    "without slices": (
        {"traceEvents": [{"ph": "i", "cat": "kernel", "name": "k", "ts": 1}]},
        "no trace of a profiler: no slices",
    ),
    "deep": (b'{"traceEvents": ' + b"[" * 200_000, "cut off or damaged"),
    "a number of 5000 digits": (b'{"traceEvents": [' + b"9" * 5000 + b"]}", "cut off or damaged"),
    "durations that add up to centuries": (
        made.trace([made.op(f"op{number}", number, 2**38) for number in range(17_000)]),
        "add up to centuries",
    ),
    "nothing sound": (made.trace([made.op(None, 1, 1), 5, "x", None]), "no ops"),
    "a number": (b"[1]", "no trace"),
}


@pytest.mark.parametrize("key", ["ts", "dur"])
def test_an_event_centuries_away_or_long_is_left_out_and_counted(key, tmp_path):
    events = [made.op(f"op{number}", number, 1) for number in range(5)]
    events[2][key] = 2**52
    capture = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert len(capture.ranges) == 4
    assert any("1 events left out" in line for line in capture.warnings)
    assert capture.facts[0].span[1] - capture.facts[0].span[0] < 10_000


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".pt.trace.json.gz", ".bin"])
@pytest.mark.parametrize("what", BAD)
def test_what_is_no_trace(what, suffix, tmp_path):
    content, said = BAD[what]
    refused(made.write(tmp_path / f"t{suffix}", content), said)


def test_a_gzip_file_that_is_cut_off(tmp_path):
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(GOOD)
    path.write_bytes(packed[:-12])
    refused(path, "cut off or damaged")
    path.write_bytes(packed[:150] + b"xxxxxx" + packed[156:])
    refused(path, "cut off or damaged")
    path.write_bytes(packed[:12])
    refused(path)


def test_a_packed_file_that_is_no_json_is_no_database_either(tmp_path):
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3\\0"))
    refused(path, "not an SQLite database")


def test_the_command_line_says_it_in_a_line(folder):
    path = made.write(folder / "t.json.gz", BAD["cut off"][0])
    for command in (["report", path], ["trace", path, "-o", "x.json"], ["import", path]):
        assert_refused(bridge(*command), path.name, "cut off or damaged")


BROKEN = [
    made.op("no time", None, 5), made.op("no length", 5, None), made.op("negative", 5, -1), made.op("huge", 5, 10**30),
    made.op("not a number", "NaN", 5), made.op("infinite", "1e400", 5), made.op(["no", "text"], 5, 5),
    made.op("list", [5], 5), 5, None, "text", [], {"ph": "X", "cat": ["x"], "name": "x", "ts": 1, "dur": 1},
]  # fmt: skip


def test_events_that_make_no_sense_are_left_out_and_counted(tmp_path):
    events = [*BROKEN, *made.small(), {"ph": "X", "name": "no category", "ts": 1, "dur": 1}]
    report = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert (len(report.ranges), len(report.launches), len(report.activities)) == (2, 1, 1)
    left_out = len(BROKEN) + 1
    [warning] = report.warnings
    assert warning.startswith(f"t.json: {left_out} events left out: ")
    plain = made.write(tmp_path / "u.json", made.trace(made.small()))
    assert importers.load(plain).warnings == ()


def test_nan_and_infinity_as_python_writes_them(tmp_path):
    events = [*made.small(), made.op("a", float("nan"), 5), made.op("b", 5, float("inf"))]
    report = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert len(report.ranges) == 2
    assert "2 events left out" in report.warnings[0]


def test_what_is_not_read_is_said(tmp_path):
    events = [*made.small(), made.event("xpu_runtime", "zeLaunch", 1, 2), made.event("overhead", "x", 1, 2)]  # fmt: skip
    report = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    assert report.warnings == ("t.json: 1 events are of kinds that are not read: xpu_runtime",)


def test_what_is_missing_is_said(tmp_path):
    def warnings(*events):
        path = made.write(tmp_path / "t.json", made.trace(list(events)))
        return " ".join(importers.load(path).warnings)

    annotation, op, call, kernel = made.small()
    assert "no kernels" in warnings(annotation, op, call)
    assert "no ops" in warnings(call, kernel)
    assert "no CUDA API calls" in warnings(op, kernel)


STRANGE = ["\ud800 lone", "nul \0 here", "é中😀", "a, seq = 5", 'quote " \\ \n', "x" * 70_000, ""]


@pytest.mark.slow
def test_strange_texts_come_through_every_output(folder):
    events = made.small()
    for at, name in enumerate(STRANGE):
        events += [made.op(name, 200 + 20 * at, 10), made.call(201 + 20 * at, 1, 100 + at)]
        events += [made.kernel(name, 205 + 20 * at, 3, 100 + at)]
    events += [{"ph": "M", "name": "process_name", "pid": made.PID, "args": {"name": "\ud800\0"}}]
    events += [{"ph": "M", "name": "thread_name", "pid": made.PID, "tid": made.TID, "args": {"name": "\udfff"}}]  # fmt: skip
    path = made.write(folder / "t.json", made.trace(events, host_name="\ud800", deviceProperties=[{"id": 0, "name": "\udc80"}]))  # fmt: skip
    report = importers.load(path)
    assert len(report.activities) == len(STRANGE) + 1
    assert {"nul \\0 here", "\\ud800 lone", "a"} <= set(report.ranges["name"])
    read = {}
    for command in (
        ["report", path, "--by", "op"], ["report", path, "--by", "kernel", "--format", "json"], ["import", path],
        ["trace", path, "-o", "a.json.gz"], ["trace", path, "-o", "a.pftrace"], ["html", path, "-o", "a.html"],
    ):  # fmt: skip
        with reading_once(read):
            done = bridge(*command)
        assert done.exit_code == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_bytes_that_json_does_not_allow_but_writers_write(tmp_path):
    """Control characters and bytes that are no UTF-8, in the names of kernels and files; a byte order mark."""
    raw = json.dumps(made.trace([*made.small(), made.op("NAME", 1, 2)])).encode()
    path = made.write(tmp_path / "t.json", b"\xef\xbb\xbf" + raw.replace(b"NAME", b"a\tb\x01\xff"))
    assert "a\tb\x01\ufffd" in set(importers.load(path).ranges["name"])


def test_ids_that_are_no_numbers_or_too_large(tmp_path):
    events = [
        made.op("a", 1, 100, pid="CPU functions", tid="main"),
        made.op("b", 1, 100, pid="CPU functions", tid="1890023232"),
        made.call(5, 1, 10**40, pid="CPU functions", tid=1_890_023_232),
        made.op("c", 1, 100, pid=None, tid=[1]),
        made.kernel("k", 10, 5, 10**40, device="0", stream=10**30, grid=5, block=[1]),
    ]
    report = importers.load(made.write(tmp_path / "t.json", made.trace(events)))
    a, b, c = report.ranges["thread"].tolist()
    assert len({a, b, c}) == 3
    assert report.launches["thread"].tolist() == [b]
    assert a // 2**24 == b // 2**24 != c // 2**24
    [kernel] = report.activities.to_pandas().to_dict("records")
    assert (kernel["correlation"], kernel["stream"], kernel["grid_x"]) == (-1, -1, -1)
    assert (kernel["device"], kernel["block_x"], kernel["process"]) == (0, 1, -1)


@pytest.mark.slow
def test_reading_leaves_the_collection_of_garbage_as_it_was(tmp_path):
    import gc

    path = made.write(tmp_path / "t.json", made.trace(made.small()))
    cut = made.write(tmp_path / "c.json", GOOD[:-9])
    for switch, on in ((gc.enable, True), (gc.disable, False)):
        switch()
        importers.load(path)
        refused(cut)
        assert gc.isenabled() == on
    gc.enable()
