"""Snapshots of torch.cuda.memory: totals against the allocator that made them, hostile files, and PyTorch's own reader."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import random
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bridge import importers
from bridge.analyze.cost.memory import (
    MemoryUsage,
    alive_at_peak,
    by_allocation,
    by_event,
    by_op,
    by_scope,
    summary,
)
from bridge.cli import main
from bridge.importers import ReportError, frames
from bridge.importers.snapshot import file
from bridge.join.attributed import AttributedCapture
from memory.snapshots import FORWARD, INTERNAL, LOSS, MAIN, Device, frame, snapshot, stack, training


def written(path, data):
    content = json.dumps(data).encode() if ".json" in path.suffixes else pickle.dumps(data)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def held_of(path) -> MemoryUsage:
    return MemoryUsage.of(AttributedCapture.of(importers.load(path)))


@pytest.fixture
def device() -> Device:
    return training(steps=6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s.pickle", "s.json", "s.pickle.gz", "s.json.gz"])
def test_totals_are_those_of_the_allocator(name, device, tmp_path):
    other = training(seed=3, number=1)
    held = held_of(written(tmp_path / name, snapshot(device, other)))
    table = summary(held).to_pandas().set_index("device")
    for one in (device, other):
        row = table.loc[one.number]
        assert (row["peak_bytes"], row["end_bytes"]) == (one.peak, one.used)
        assert row["before_bytes"] == 0
        assert row["peak_reserved_bytes"] == one.reserved
        alive = (
            by_allocation(held)
            .to_pandas()
            .query("state == 'alive at the end' and device == @one.number")
        )
        assert alive["bytes"].sum() == one.used
    assert held.attributed.capture.facts[0].epoch_ns > 1_700_000_000 * 10**9


def test_lines_of_the_program_are_ops(device, tmp_path):
    held = held_of(written(tmp_path / "s.pickle", snapshot(device)))
    ops = by_op(held).to_pandas().set_index("op")
    assert ops.loc["model.py:12 forward", "allocations"] == 36
    assert ops.loc["train.py:22 loss", "left_bytes"] == 6 * 4096
    assert ops.loc["train.py:40 main", "total_allocations"] == 46
    assert ops.loc["train.py:31 step", "releases"] == 6
    assert ops.loc["(no op)", "releases"] == 18  # no stack of their own: that of the allocation
    assert not any("_call_impl" in op for op in ops.index)
    scopes = by_scope(held).to_pandas().set_index("path")
    peak = summary(held)["peak_bytes"][0]
    assert scopes.loc["train.py:40 main", "total_bytes"] == peak
    assert scopes.loc["train.py:40 main", "bytes"] == 0
    assert scopes["bytes"].sum() == peak == alive_at_peak(held)["bytes"].sum()
    assert scopes.loc["train.py:40 main/train.py:22 loss", "count"] >= 1


def test_releases_of_every_device_are_of_their_own_line_or_of_none(tmp_path):
    """Without a stack of its own a release has that of its allocation, which does not tell who released."""
    devices = [Device(n, base=0x7F0000000000) for n in range(3)]
    for one in devices:
        untold, told = (one.alloc(2048, stack(MAIN, FORWARD)) for _ in range(2))
        one.free(untold)
        one.free(told, stack(MAIN, LOSS))
    path = written(tmp_path / "s.pickle", snapshot(*devices))
    releases = by_op(held_of(path)).to_pandas().set_index("op")["releases"]
    assert releases["(no op)"] == 3
    assert releases["train.py:22 loss"] == 3
    assert releases.sum() == 6


def test_what_the_history_has_forgotten_was_there_before(tmp_path):
    device = training(steps=8, most=60)
    held = held_of(written(tmp_path / "s.pickle", snapshot(device)))
    [row] = summary(held).records()
    assert row["end_bytes"] == device.used
    assert row["before_bytes"] > 0
    assert row["peak_bytes"] <= device.peak
    assert row["peak_reserved_bytes"] == device.reserved
    before = by_allocation(held).to_pandas().query("state == 'before the capture'")
    assert before["bytes"].sum() == row["before_bytes"]
    assert "model.py:5 __init__" in set(before["op"])
    assert (before["start_ns"] == -1).all()
    alive = alive_at_peak(held)
    assert alive["bytes"].sum() == row["peak_bytes"]
    assert "model.py:6 __init__" in set(alive["op"])
    assert by_op(held)["allocations"].sum() == row["allocations"] == held.is_made.sum()


@pytest.mark.slow
def test_segments_alone(device, tmp_path):
    data = snapshot(device) | {"device_traces": []}
    forms = [(name, one) for name in ("s.pickle", "s.json") for one in (data, data["segments"])]
    for name, shape in forms:
        path = written(tmp_path / name, shape)
        report = importers.load(path)
        assert "no history" in report.warnings[0]
        held = held_of(path)
        [row] = summary(held).records()
        assert row["peak_bytes"] == row["end_bytes"] == row["before_bytes"] == device.used
        assert (row["allocations"], row["peak_ns"]) == (0, -1)
        alive = alive_at_peak(held)
        assert alive["bytes"].sum() == device.used
        assert set(alive["op"]) == {
            "train.py:22 loss",
            *(f"model.py:{n} __init__" for n in range(5, 9)),
        }
        assert row["peak_reserved_bytes"] == device.reserved


@pytest.mark.slow
def test_older_forms(device, tmp_path):
    """No times; blocks without addresses and sizes asked for, or with a history."""
    new = copy.deepcopy(snapshot(device))
    new["device_traces"][0] = new["device_traces"][0][20:]
    for form in ("bare", "history"):
        old = copy.deepcopy(new)
        for entry in old["device_traces"][0]:
            del entry["time_us"]
        for block in (block for segment in old["segments"] for block in segment["blocks"]):
            del block["address"]
            if form == "history" and block["state"] == "active_allocated":
                real, frames_of = block.pop("requested_size"), block.pop("frames")
                block["history"] = [{"addr": 0, "real_size": real, "frames": frames_of}]
        path = written(tmp_path / "old.pickle", old)
        assert "no times" in importers.load(path).warnings[0]
        first, second = (held_of(p) for p in (path, written(tmp_path / "new.pickle", new)))
        assert np.array_equal(first.used, second.used)
        alive = alive_at_peak(first).to_pandas()
        assert alive.equals(alive_at_peak(second).to_pandas())


def test_what_waits_to_be_freed_is_held(tmp_path):
    device = Device()
    kept = device.alloc(1000, stack(MAIN, FORWARD))
    device.alloc(500, stack(MAIN, LOSS))
    device.free(kept, complete=False)
    held = held_of(written(tmp_path / "s.pickle", snapshot(device)))
    assert summary(held)["end_bytes"].tolist() == [1500]


def test_reserved_follows_segments(tmp_path):
    device = Device()
    first = device.alloc(8 << 20, [])
    second = device.alloc(30 << 20, [])
    device.free(second)
    device.empty_cache()
    third = device.alloc(1, [])
    held = held_of(written(tmp_path / "s.pickle", snapshot(device)))
    assert held.reserved.tolist() == [n << 20 for n in (20, 50, 50, 20, 20)]
    assert by_event(held)["event"].tolist() == "allocate allocate release reserve allocate".split()
    assert summary(held)["allocations"].tolist() == [3]
    assert by_op(held)["allocations"].sum() == len(by_allocation(held)) == 3
    assert len({first, second, third}) == 3
    assert "no stacks" in held.attributed.capture.warnings[0]


MIB = 1 << 20


def entries(*said):
    """A trace of (action, address, MiB)."""
    return [
        {"action": action, "addr": at, "size": size * MIB, "frames": [], "time_us": 10 * n + 10}
        for n, (action, at, size) in enumerate(said)
    ]


def segment(size, *blocks):
    return {"device": 0, "address": 1, "total_size": size * MIB, "blocks": [*blocks]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "segments", "peak", "levels"),
    [
        (  # what was there before goes before anything is allocated
            entries(("segment_free", 900, 100), ("segment_alloc", 1, 20), ("alloc", 1, 5)),
            [segment(20)],
            100,
            [100, 0, 20],
        ),
        (  # comes and goes between two allocations
            entries(
                ("segment_alloc", 1, 20), ("alloc", 1, 5), ("segment_map", 900, 60), ("segment_unmap", 900, 60),
                ("free_completed", 1, 5),
            ),
            [segment(20)],
            80,
            [20, 80, 20, 20],
        ),
        (entries(("segment_alloc", 1, 20), ("alloc", 1, 5)), [], -1, [-1]),  # no segments
        (entries(("alloc", 1, 5)), [], -1, [-1]),
        (
            entries(("alloc", 1, 5), ("free_completed", 1, 5), ("segment_free", 1, 20)),
            [],
            20,
            [20, 20, 20, 0],
        ),
    ],
)  # fmt: skip
def test_the_most_reserved_may_be_between_allocations(trace, segments, peak, levels, tmp_path):
    held = held_of(written(tmp_path / "s.pickle", {"segments": segments, "device_traces": [trace]}))
    assert held.reserved.tolist() == [n if n < 0 else n * MIB for n in levels]
    assert summary(held)["peak_reserved_bytes"].tolist() == [peak if peak < 0 else peak * MIB]
    assert by_op(held)["allocations"].sum() == len(by_allocation(held)) == 1
    assert not len(held.lost)
    for by in ("op", "allocation", "alive", "category", "scope", "trace", "summary"):
        done = CliRunner().invoke(main, ["memory", str(tmp_path / "s.pickle"), "--by", by])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "words", [["--timeline", "w.svg"], ["--timeline", "w.json"], ["--flow", "w.svg"], ["-o", "w.svg", "--by", "category"]]
)  # fmt: skip
def test_nothing_is_drawn_of_a_time_without_allocations(device, tmp_path, words):
    path = written(tmp_path / "s.pickle", snapshot(device))
    words = [str(tmp_path / word) if word.startswith("w.") else word for word in words]
    done = CliRunner().invoke(main, ["memory", str(path), "--from", "10s", *words])
    assert done.exit_code == 1
    assert done.stderr.endswith(
        "Error: no allocation or release in the time looked at: nothing to draw\n"
    )
    assert [one.name for one in tmp_path.iterdir()] == ["s.pickle"]


def test_out_of_memory_is_said_and_marked(device, tmp_path):
    device.out_of_memory(8 << 30, 1 << 20, stack(MAIN, FORWARD))
    path = written(tmp_path / "s.pickle", snapshot(device))
    report = importers.load(path)
    assert report.marks["name"].tolist() == ["out of memory"]
    assert report.marks["payload"].tolist() == [8 << 30]
    done = CliRunner().invoke(main, ["memory", str(path), "--by", "summary"])
    assert done.exit_code == 0, done.output
    assert (
        "out of memory once: 8589934592 bytes were requested on GPU 0, which had 1048576 free"
        in done.stderr
    )
    assert "peak" in done.stdout


@pytest.mark.slow
def test_every_table_and_drawing(device, tmp_path):
    path = written(tmp_path / "s.pickle", snapshot(device, training(seed=1, number=1, most=30)))
    for by in ("op", "allocation", "alive", "category", "scope", "trace", "summary"):
        done = CliRunner().invoke(main, ["memory", str(path), "--by", by, "--format", "json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"]
    for command in ("memory", "trace"):
        for name in (
            (f"{command}.svg", "timeline.svg") if command == "memory" else ("t.json", "t.pftrace")
        ):
            done = CliRunner().invoke(main, [command, str(path), "-o", str(tmp_path / name)])
            assert done.exit_code == 0, done.output
            assert (tmp_path / name).stat().st_size > 1000


# -- stacks


def test_a_line_is_open_while_stacks_have_it():
    lines = np.array([[0, 1, -1], [0, 2, 3], [0, 2, -1], [-1, -1, -1]])
    stack_of, time = np.array([0, 0, 1, 2, 3, 0]), np.array([10, 20, 30, 40, 50, 60])
    found = [tuple(row) for row in np.stack(file.ranges(stack_of, time, lines), axis=1).tolist()]
    assert sorted(found) == sorted(
        [(0, 10, 50), (1, 10, 30), (2, 30, 50), (3, 30, 40), (0, 60, 61), (1, 60, 61)]
    )


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=12))
def test_ranges_of_stacks_hold_exactly_the_stack_of_each_entry(entries):
    known = [*dict.fromkeys(map(tuple, entries))]
    lines = np.full((len(known), 4), -1)
    for row, codes in enumerate(known):
        lines[row, : len(codes)] = codes
    stack_of = np.array([known.index(tuple(e)) for e in entries])
    line, start, end = file.ranges(stack_of, 10 * np.arange(len(entries)), lines)
    for n, entry in enumerate(entries):
        assert line[(start <= 10 * n) & (10 * n < end)].tolist() == entry


def test_which_lines_are_shown():
    def shown(*frames_of):
        known = file.Stacks()
        known.of([[frame(*one) for one in frames_of]])
        return known.texts()

    assert shown(("/x/model.py", 3, "f"), *[tuple(f.values()) for f in INTERNAL]) == [
        "model.py:3 f"
    ]
    assert shown(("/x/site-packages/torch/nn/functional.py", 9, "linear")) == [
        "functional.py:9 linear"
    ]
    cpp = [
        ("??", 0, "c10::alloc"),
        ("x.cpp", 1, "at::_ops::empty::call(...)"),
        ("y.cpp", 2, "at::_ops::mm::call(...)"),
    ]
    assert shown(*cpp) == ["aten::mm"]
    assert shown(*cpp, ("/x/a.py", 1, "g")) == ["a.py:1 g"]
    assert shown(("??", 0, "start_thread")) == []
    assert shown(("/x/a/m.py", 1, "f"), ("/x/b/m.py", 2, "g")) == ["b/m.py:2 g", "a/m.py:1 f"]
    assert shown(("/home/me/torch/train.py", 5, "main")) == ["train.py:5 main"]


# -- files that are something else


class Harm:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_nothing_in_a_pickle_is_run(protocol, tmp_path):
    path, harm = tmp_path / "s.pickle", tmp_path / "harm"
    path.write_bytes(
        pickle.dumps({"segments": [], "device_traces": [[Harm(harm)]]}, protocol=protocol)
    )
    with pytest.raises(ReportError, match="none of its code was run"):
        importers.load(path)
    assert not harm.exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"segments": [], "device_traces": []}, "no allocations"),
        ({"segments": [], "device_traces": [[]]}, "no allocations"),
        ({"weights": [1.5]}, "no snapshot of torch.cuda.memory"),
        ([1, 2], "no allocations"),
        ({"segments": 5, "device_traces": []}, "no snapshot"),
        ("text", "no snapshot"),
    ],
)
def test_other_pickles(data, said, tmp_path):
    with pytest.raises(ReportError, match=said):
        importers.load(written(tmp_path / "s.pickle", data))


@pytest.mark.slow
@pytest.mark.parametrize("item", [b"s", b"u", b"d"])
def test_keys_are_no_tuples_a_million_deep(item, tmp_path):
    key = b")" + b"\x85" * 1_000_000 + b"N"
    opening = {b"s": b"}", b"u": b"}(", b"d": b"("}[item]
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x04" + opening + key + item + b".")
    with pytest.raises(ReportError, match="a key that is not a text"):
        importers.load(path)


@pytest.mark.slow
def test_states_may_be_as_deep_as_they_like(tmp_path):
    state = b")" + b"\x85" * 100_000
    block = b"}(\x8c\x05state" + state + b"\x8c\x07addressK\x01u"
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x04}\x8c\x08segments](}(\x8c\x06blocks](" + block + b"eues.")
    with pytest.raises(ReportError, match="no allocations"):
        importers.load(path)


def test_numbers_of_lines_have_few_digits(device, tmp_path):
    data = snapshot(device)
    data["device_traces"][0][1]["frames"] = [frame("a.py", 1 << 99999, "f")]
    report = importers.load(written(tmp_path / "s.pickle", data))
    assert "a.py:0 f" in set(report.ranges["name"])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["segments", "device_traces", "blocks"])
def test_lists_named_again_and_again_are_no_entries(what, device, tmp_path):
    """A file of kilobytes may stand for 10 GB."""
    block = {"size": 1, "state": "active_allocated"}
    one = {"device": 0, "address": 1, "total_size": 1, "blocks": [block] * 3000}
    data = {
        "segments": {"segments": [one] * 3000, "device_traces": []},
        "blocks": {"segments": [one | {"blocks": [block] * 300_000}], "device_traces": []},
        "device_traces": {"segments": [], "device_traces": [[{"action": "alloc"}] * 3000] * 3000},
    }[what]
    path = written(tmp_path / "s.pickle", data)
    if what == "blocks":  # each takes its bytes in the file
        assert len(importers.load(path).memory) == 300_000
        return
    with pytest.raises(ReportError, match="more entries than bytes"):
        importers.load(path)


def test_what_does_not_fit_into_memory(device, tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("bridge.importers.plain_data._unpickle", full)
    with pytest.raises(ReportError, match="do not fit into memory"):
        importers.load(written(tmp_path / "s.pickle", snapshot(device)))


def test_packed_files_that_are_cut_off(device, tmp_path):
    whole = written(tmp_path / "s.pickle.gz", snapshot(device))
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(ReportError, match="cut off or damaged"):
        importers.load(whole)


def test_entries_that_make_no_sense_are_counted(device, tmp_path):
    data = snapshot(device)
    odd = [
        None,
        {},
        {"action": "alloc"},
        {"action": "alloc", "addr": -5, "size": 1, "time_us": 1},
        {"action": ["alloc"]},
    ]
    data["device_traces"][0] = [*odd, *data["device_traces"][0]]
    data["segments"] += [
        None,
        {"blocks": 3},
        {"device": 0, "blocks": [None, {"state": "active_allocated", "size": 1 << 80}]},
    ]
    report = importers.load(written(tmp_path / "s.pickle", data))
    assert any(f"{len(odd)} entries left out" in text for text in report.warnings)
    assert len(report.memory) == 46 + 36


@cache
def whole() -> list[bytes]:
    data = snapshot(training(steps=1), training(seed=2, steps=1, number=1, most=20))
    return [pickle.dumps(data, protocol=p) for p in (2, 4)] + [json.dumps(data).encode()]


@pytest.mark.slow
@given(st.integers(0, 2), st.integers(0, 2**32), st.integers(1, 6))
def test_damaged_files_are_errors_or_reports(tmp_path_factory, which, seed, changes):
    dice = random.Random(seed)
    data = bytearray(whole()[which])
    for _ in range(changes):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + dice.randrange(1, 40)]
            case 2:
                data[at:at] = dice.choice(
                    [
                        b"r\xff\xff\xff\x7f",
                        b"R",
                        b"c",
                        b"0",
                        b"(",
                        b"}",
                        b"]",
                        b"NaN",
                        b"-1",
                        b"1e999",
                    ]
                )
            case _:
                del data[at:]
        if len(data) < 3:
            break
    path = tmp_path_factory.getbasetemp() / "fuzz.pickle"
    path.write_bytes(data or b"x")
    try:
        held = held_of(path)
    except ReportError:
        return
    summary(held), by_op(held), by_allocation(held)


# -- PyTorch itself


@pytest.mark.slow
def test_pytorch_reads_what_is_made_here_and_finds_the_same(device):
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="PyTorch is not installed")
    device.empty_cache()
    said = viz.segsum(snapshot(device))
    assert f"total_allocated: {viz.Bytes(device.used)!r}" in said
    assert f"total_reserved: {viz.Bytes(device.reserved)!r}" in said
    assert f"{len(device.trace)} entries" in viz.trace(snapshot(device))
    assert "snapshot.pickle" in viz.trace_plot(snapshot(device))


def test_frames_of_memory_are_whole(device, tmp_path):
    table = importers.load(written(tmp_path / "s.pickle", snapshot(device))).memory.to_pandas()
    assert list(table.columns) == list(frames.FRAMES["memory"].types)
    assert np.all(np.diff(table["time"].to_numpy()) > 0)
