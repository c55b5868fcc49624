"""What is no whole trace of Cuspy gets one clear line, and takes no more memory than a trace of its size."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from command import assert_refused, bridge, refused
from real_parts import NIGHT

from bridge import importers
from bridge.importers.capture import defects
from bridge.importers.perfetto import read

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed")  # fmt: skip
pytestmark = pytest.mark.slow

TRACE = Path(__file__).parent / "data/cuspy.pftrace"
CUT, FOREIGN = (
    "cut off or damaged; copy it again",
    "none of PyTorch's Cuspy; read the report or trace that it was made of",
)


@pytest.fixture(scope="module")
def whole():
    return gzip.decompress(TRACE.read_bytes())


@pytest.fixture
def proto(whole):
    return pb.Trace.FromString(whole)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "made.pftrace"


def write(path, proto):
    path.write_bytes(proto.SerializeToString())
    return path


def slices(proto, kind):
    return [p.track_event for p in proto.packet if p.HasField("track_event") and p.track_event.type == kind]  # fmt: skip


def test_a_file_that_is_cut_off_anywhere(whole, path):
    packed = TRACE.read_bytes()
    for length in range(2, len(packed), 1 if NIGHT else 997):
        path.write_bytes(packed[:length])
        refused(path, "cut off or damaged")
    ends, at = set(), 0
    for packet in pb.Trace.FromString(whole).packet:
        at += len(pb.Trace(packet=[packet]).SerializeToString())
        ends.add(at)
    for length in range(1, len(whole), 31 if NIGHT else 1997):
        path.write_bytes(whole[:length])
        if length not in ends:
            refused(path, CUT)


def test_begins_without_their_ends(proto, path):
    del proto.packet[200:]
    refused(write(path, proto), CUT)


def test_ends_of_other_tracks(proto, path):
    slices(proto, pb.TrackEvent.TYPE_SLICE_END)[3].track_uuid += 100
    refused(write(path, proto), CUT)


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, 2**64 - 1])
def test_lengths_beyond_the_end(whole, path, length):
    groups = [length >> shift & 127 for shift in range(0, 70, 7)]
    written = bytes(group | 128 for group in groups[:-1]) + bytes(groups[-1:])
    for data in (b"\x0a" + written + whole, whole + b"\x0a" + written, b"\x0a\x0c\x5a" + written[:10]):  # fmt: skip
        path.write_bytes(data)
        refused(path, CUT)


def test_numbers_of_endless_bytes(whole, path):
    path.write_bytes(whole + b"\x0a" + b"\xff" * 5000)
    refused(path, CUT)


def test_bytes_that_expand_without_end(path):
    path.write_bytes(gzip.compress(bytes(200 << 20)))
    refused(path, "unpacks to over 200 times its size")


@pytest.mark.parametrize("seed", range(400 if NIGHT else 40))
def test_bytes_that_changed(seed, whole, path):
    """It is refused in a line, or what is read is a sound capture."""
    chance, data = random.Random(seed), bytearray(whole)
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


def test_traces_of_others(proto, path, demo, tmp_path):
    for packet in proto.packet:
        packet.interned_data.ClearField("event_categories")
        packet.interned_data.ClearField("gpu_specifications")
    refused(write(path, proto), FOREIGN)
    own = tmp_path / "own.pftrace"
    assert bridge("trace", demo, "-o", own).exit_code == 0
    assert_refused(bridge("report", own), own.name, FOREIGN)
    path.write_bytes(b"")
    refused(path, "empty")


def test_a_trace_of_android(path):
    """Of the kernel, with a packet that is compressed: nothing in it is unpacked."""
    trace = pb.Trace()
    trace.packet.add(timestamp=5).trace_config.buffers.add(size_kb=64)
    switched = trace.packet.add(timestamp=6).ftrace_events.event.add(timestamp=7, pid=3)
    switched.sched_switch.prev_comm = "init"
    trace.packet.add(compressed_packets=b"\x78\x9c" * 50)
    refused(write(path, trace), FOREIGN)


def test_a_file_larger_than_a_message(whole, path, monkeypatch):
    path.write_bytes(whole)
    monkeypatch.setattr(read, "LARGEST", len(whole) - 1)
    refused(path, "record less")


def test_what_is_no_protobuf_has_its_suffix(path):
    path.write_bytes(b"PK\x03\x04 not a trace")
    refused(path, CUT)


def test_two_traces_in_a_file(whole, path):
    path.write_bytes(whole + whole)
    refused(path, "several traces one after another")


def test_nothing_recorded(proto, path):
    kept = [p for p in proto.packet if not p.HasField("track_event") and not p.HasField("gpu_render_stage_event")]  # fmt: skip
    refused(write(path, pb.Trace(packet=kept)), "no ops, no CUDA calls and no kernels")


def test_a_part_alone(proto, path):
    """Ops without work of a GPU, such work without a host, and calls without ops are reports."""
    names = {e.iid: e.name for p in proto.packet for e in p.interned_data.event_categories}

    def is_call(packet):
        return [names[iid] for iid in packet.track_event.category_iids] in (["cuda_runtime"], ["cuda_driver"])  # fmt: skip

    begins = [p for p in proto.packet if p.track_event.type == pb.TrackEvent.TYPE_SLICE_BEGIN]
    ends = [p for p in proto.packet if p.track_event.type == pb.TrackEvent.TYPE_SLICE_END]
    others = [p for p in proto.packet if not p.HasField("track_event")]
    on_host = [p for p in others if not p.HasField("gpu_render_stage_event")]
    calls = [(b, e) for b, e in zip(begins, ends, strict=True) if is_call(b)]
    of_calls = [*(b for b, _ in calls), *(e for _, e in calls)]
    for packets, expected in (
        ([*on_host, *begins, *ends], (278, 27, 0)), (others, (6, 0, 32)), ([*on_host, *of_calls], (0, 27, 0)),
    ):  # fmt: skip
        capture = importers.load(write(path, pb.Trace(packet=packets)))
        assert (len(capture.ranges), len(capture.launches), len(capture.activities)) == expected
        assert [*defects(capture)] == []
        assert capture.warnings


def test_impossible_times_and_unknown_tracks_are_left_out_and_counted(proto, path):
    stages = [p for p in proto.packet if p.HasField("gpu_render_stage_event")]
    stages[0].timestamp = 2**63 - 1
    stages[1].gpu_render_stage_event.duration = 2**64 - 1
    stages[2].gpu_render_stage_event.name_iid = 10**6
    began = slices(proto, pb.TrackEvent.TYPE_SLICE_BEGIN)[0]
    ended = slices(proto, pb.TrackEvent.TYPE_SLICE_END)[0]
    began.track_uuid = ended.track_uuid = 10**6
    capture = importers.load(write(path, proto))
    assert "4 events left out" in capture.warnings[0]
    assert len(capture.activities) == 32 - 3


def test_lists_within_lists_without_end(proto, path):
    began = slices(proto, pb.TrackEvent.TYPE_SLICE_BEGIN)[0]
    said = began.debug_annotations.add(name="Input type")
    for _ in range(60):
        said = said.array_values.add()
    refused(write(path, proto), CUT)


def test_texts_that_are_hostile(proto, path):
    for packet in proto.packet:
        for entry in packet.interned_data.event_names:
            entry.name = "\x1b[31mred\0" + ", seq = 5" * 1000
    capture = importers.load(write(path, proto))
    assert [*defects(capture)] == []
