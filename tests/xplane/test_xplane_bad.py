"""What is no whole profile gets one clear line, or is read with a warning where protobuf itself cannot tell."""

from __future__ import annotations

import random
from pathlib import Path

import made_xplane as made
import pytest
from command import assert_refused, bridge, refused
from real_parts import NIGHT

from bridge import importers
from bridge.importers.capture import defects
from bridge.importers.xplane import read

REAL = Path(__file__).parent / "data/cpu-training.xplane.pb"
CUT = "cut off or damaged; copy it again"
EMPTY = "no events; did the profiled part run anything?"


@pytest.fixture(scope="module")
def small():
    return made.gpu_profile().proto.SerializeToString()


def planes_end(data):
    """List where a plane ends: a file that is cut there is a whole message."""
    space = made.CLASSES["XSpace"].FromString(data)
    result, size = [0], 0
    for plane in space.planes:
        part = made.CLASSES["XSpace"]()
        part.planes.add().CopyFrom(plane)
        size += part.ByteSize()
        result.append(size)
    return result


def test_a_file_that_is_cut_off_anywhere(small, tmp_path):
    path, whole = tmp_path / "cut.xplane.pb", planes_end(small)
    lengths = range(1, len(small), 1 if NIGHT else 29)
    for length in sorted({*lengths, *whole[1:]}):
        path.write_bytes(small[:length])
        if length not in whole:
            refused(path, CUT)
        elif length == whole[1]:  # the plane of programs alone
            refused(path, EMPTY)
        else:
            [*_, last] = importers.load(path).warnings
            assert "it ends without the name of its host" in last


@pytest.mark.parametrize("seed", range(400 if NIGHT else 40))
def test_bytes_that_changed(seed, small, tmp_path):
    """It is refused in a line, or what is read is a sound capture."""
    chance, path = random.Random(seed), tmp_path / "changed.xplane.pb"
    data = bytearray(small if seed % 4 else REAL.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    said = ""
    try:
        capture = importers.load(path)
    except importers.ReportError as error:
        said = str(error)
    if said:
        assert path.name in said
        assert "\n" not in said
    else:
        assert [*defects(capture)] == []


def test_the_command_line_says_it_in_a_line(folder, small):
    path = folder / "cut.xplane.pb"
    path.write_bytes(small[:1000])
    for command in (
        ["report", path],
        ["summary", path],
        ["trace", path, "-o", "x.json"],
        ["import", path],
    ):
        assert_refused(bridge(*command), path.name, CUT)
    assert sorted(p.name for p in folder.iterdir()) == [path.name]


def test_a_file_larger_than_a_message(small, tmp_path, monkeypatch):
    path = tmp_path / "large.xplane.pb"
    path.write_bytes(small)
    monkeypatch.setattr(read, "LARGEST", len(small) - 1)
    refused(path, "2 GiB")


def test_nothing_recorded(tmp_path):
    space = made.Space()
    space.plane("/host:CPU").line(1, "python")
    refused(space.write(tmp_path / "g.xplane.pb"), EMPTY)
    space.plane("/device:TPU:0").line(1, "XLA Ops").event("fusion", 0, made.US)
    refused(space.write(tmp_path / "g.xplane.pb"), "no events of the host, and no work of a GPU")


def test_events_that_make_no_sense_are_left_out_and_counted(tmp_path):
    space = made.Space()
    plane = space.plane("/host:CPU")
    line = plane.line(1, "python", 10**15)
    for number in range(5):
        line.event(f"f{number}", number * made.US, made.US, place=number)
    line.event("centuries away", 2**62, made.US, place=-2)
    line.event("long", 0, 2**60, place=-2)
    line.event("negative", 0, -1, place=-2)
    line.event("", 0, made.US)
    line.proto.events.add(metadata_id=99, offset_ps=1)
    line.proto.events.add(metadata_id=1, num_occurrences=7, duration_ps=5)
    plane.line(2, "other", 2**62).event("another age", 0, made.US)
    capture = importers.load(space.write(tmp_path / "g.xplane.pb"))
    assert capture.ranges.name.tolist() == [f"f{number}" for number in range(5)]
    assert capture.ranges.json.tolist() == [f'{{"place": {number}}}' for number in range(5)]
    assert "7 events left out" in capture.warnings[1]


def test_what_the_profiler_says_is_said(tmp_path):
    space = made.gpu_profile()
    space.proto.warnings.append("Detected GPU events dropped on node7:\n 5 events")
    [warning] = importers.load(space.write(tmp_path / "g.xplane.pb")).warnings
    assert (
        warning == "g.xplane.pb: the profiler says: Detected GPU events dropped on node7: 5 events"
    )


def test_texts_that_are_hostile(tmp_path):
    space = made.Space()
    line = space.plane("/host:CPU").line(1, "py\0thon")
    for name in (
        "\x1b[31mred",
        "a\0b",
        "jit(" * 3000,
        "x" * 100_000,
        ", seq = 5",
        "#",
        "end: ",
        "$",
    ):
        line.event(name, 0, made.US, hlo_op=name, name="(" * 5000 + "/a")
    line.event("deep", 0, made.US, **{f"stat{n}": n for n in range(300)})
    capture = importers.load(space.write(tmp_path / "g.xplane.pb"))
    assert [*defects(capture)] == []


def test_a_thread_with_many_nested_events_takes_no_quadratic_time(tmp_path):
    space = made.Space()
    line = space.plane("/host:CPU").line(1, "python")
    for depth in range(20_000):
        line.event("f", depth * 1000, (40_000 - 2 * depth) * 1000, hlo_op="add")
    assert len(importers.load(space.write(tmp_path / "g.xplane.pb")).ranges) == 20_000
