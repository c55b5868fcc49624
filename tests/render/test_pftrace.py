"""The Perfetto trace, held against the timeline it was made of: by hand, by protobuf, by the trace processor."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import real_parts
from hypothesis import given
from hypothesis import strategies as st

import bridge.report
from bridge.analyze.draw.timeline import (
    Arrows,
    Chain,
    Json,
    ListColumn,
    NameColumn,
    Slices,
    Timeline,
    timeline,
)
from bridge.analyze.draw.tracks import Group, Track
from bridge.cli import demo_report
from bridge.importers import ReportError
from bridge.render import packets
from bridge.render.packet_tracks import Descriptors
from bridge.render.pftrace import pftrace

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
PROCESS = Group(77, "python", 0)
DEVICE = Group(10_000_001, "GPU 0, python 77", 1)
THREAD = Track(PROCESS, 78, "main", 0)
API = Track(PROCESS, 10_000_002, "main CUDA API", 50)
STREAM = Track(DEVICE, 10_000_003, "stream 7", 150)
ABOVE = Track(DEVICE, 10_000_004, "stream 7 ops", 100)
TRACKS = [THREAD, API, STREAM, ABOVE]
NAMES = [
    'say "hi"',
    "back\\slash",
    "größe ✓ 🚀",
    "new\nline\ttab\r",
    "\x07 bell \x7f \x1b[1m",
    "𐀀 \U0010ffff",
]


def ints(values):
    return np.array(values, np.int64)


def drawn(kind, spans=(), track=0, names=None, **args):
    """Slices from (start, end) in drawing order, each with a name of its own unless told otherwise."""
    start, end = (ints([span[n] for span in spans]) for n in (0, 1))
    names = names or [f"{kind} {n}" for n in range(len(spans))]
    codes = np.arange(len(spans)) % max(len(names), 1)
    tracks = np.full(len(spans), track)
    return Slices(
        kind, np.arange(len(spans)), tracks, start, end - start, NameColumn(codes, names), args
    )


def arrows(slices, op=None, call=None):
    """Arrows to every activity that has a call; ``op`` and ``call`` are rows, per activity; none unless given."""
    of_kind = {s.kind: s for s in slices}
    ops, calls = (of_kind.get(kind, drawn(kind)) for kind in ("op", "api"))
    activities = max(
        (s for s in slices if s.kind in {"kernel", "memcpy"}), key=len, default=drawn("kernel")
    )
    none = [-1] * len(activities)
    op, call = ints(none if op is None else op), ints(none if call is None else call)
    return Arrows(np.flatnonzero(call >= 0), op, call, ops, calls, activities)


def made(*slices, base=0, op=None, call=None, **more):
    rest = {"phases": drawn("phase"), "marks": drawn("mark"), "counters": []}
    return Timeline(base, TRACKS, list(slices), **rest | more, arrows=arrows(slices, op, call))


def bytes_of(drawing, source=("x.sqlite",), metadata=()):
    return b"".join(pftrace(drawing, source, metadata))


def decoded(drawing):
    """Return the packets, with times in place of the differences that the trace's clock counts."""
    found = pb.Trace.FromString(bytes_of(drawing)).packet
    boot_time, own = found[0].clock_snapshot.clocks
    assert (boot_time.clock_id, own.clock_id, own.is_incremental) == (6, 64, True)
    assert found[0].trace_packet_defaults.timestamp_clock_id == own.clock_id
    now = own.timestamp
    assert now == boot_time.timestamp
    for p in found:
        if p.HasField("timestamp"):
            now = (now + p.timestamp) % 2**64
            p.timestamp = now
    return found


def texts(decoded_packets, field):
    entries = [entry for p in decoded_packets for entry in getattr(p.interned_data, field)]
    assert len({entry.iid for entry in entries}) == len(entries)
    assert all(entry.iid for entry in entries)
    return {
        entry.iid: getattr(entry, "str" if field.endswith("values") else "name")
        for entry in entries
    }


def events(drawing, kind=BEGIN):
    """(time, category, name, arguments) of each event of a type."""
    found = decoded(drawing)
    names, categories = texts(found, "event_names"), texts(found, "event_categories")
    keys = texts(found, "debug_annotation_names")
    values = texts(found, "debug_annotation_string_values")

    def value(a):
        if a.array_values:
            return [v.int_value for v in a.array_values]
        return values[a.string_value_iid].decode() if a.string_value_iid else a.int_value

    return [
        (
            p.timestamp,
            [categories[iid] for iid in p.track_event.category_iids],
            names[p.track_event.name_iid],
            {keys[a.name_iid]: value(a) for a in p.track_event.debug_annotations},
        )
        for p in found
        if p.track_event.type == kind
    ]


@pytest.fixture
def opened(trace_processor, tmp_path):
    """Write a timeline, and open it in the trace processor, which must find nothing wrong with it."""
    from viewers.trace_processor import check_trace

    def opened(drawing):
        path = tmp_path / "t.pftrace"
        path.write_bytes(bytes_of(drawing))
        trace = trace_processor(path)
        check_trace(trace)
        return trace

    return opened


SLICES = """select s.category as category, s.ts as ts, s.dur as dur, s.depth as depth, s.name as name,
  coalesce(track.name, thread.name) as track from slice s join track on track.id = s.track_id
  left join thread_track on thread_track.id = s.track_id left join thread using (utid)"""
FLOWS = """select o.category as out, o.ts as start, i.category as into_, i.ts as end
  from flow join slice o on o.id = slice_out join slice i on i.id = slice_in"""


def shown(trace):
    return Counter(map(tuple, trace.query(SLICES)))


def expected_slices(whole):
    """What must be shown, slice by slice: of a phase's depth and track nothing is said here."""
    base = min(whole.base, 0)
    found = Counter()
    for s in [*whole.slices, whole.phases, whole.marks]:
        for row in s.rows.tolist():
            track = "phases" if s.kind == "phase" else whole.tracks[s.track[row]].name
            name = s.name.names[s.name.codes[row]].partition("\0")[0]
            found[s.kind, int(s.start[row]) - base, int(s.duration[row]), name, track] += 1
    return found


def expected_flows(a, base):
    kinds = {id(a.ops): "op", id(a.calls): "api"}

    def at(s, row):
        return kinds.get(id(s), "device"), int(s.start[row]) - base

    pairs = {(int(a.op[row]), int(a.call[row])) for row in a.rows.tolist() if a.op[row] >= 0}
    found = Counter((*at(a.ops, op), *at(a.calls, call)) for op, call in pairs)
    return found + Counter((*at(a.calls, a.call[row]), *at(a.activities, row)) for row in a.rows)


def found_flows(trace):
    device = {"kernel", "memcpy", "memset", "graph"}
    return Counter(
        (row.out, row.start, "device" if row.into_ in device else row.into_, row.end)
        for row in trace.query(FLOWS)
    )


def nested(whole):
    """Count the slices of each depth, by a stack per track; those of a track come from any kind."""
    found = Counter()
    of_track = {}
    for s in whole.slices:
        for row in s.rows.tolist():
            span = int(s.start[row]), -int(s.duration[row])
            of_track.setdefault(int(s.track[row]), []).append(span)
    for spans in of_track.values():
        ends = []
        for start, minus in sorted(spans):
            while ends and ends[-1] <= start:
                ends.pop()
            found[len(ends)] += 1
            ends.append(start - minus)
    return found


# Every other report, for time: test_chrome loads each of them, from the same timeline.
@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports()[::2])
def test_real_reports_load_whole(path, opened):
    try:
        joined = bridge.report.load(path)
    except ReportError:
        real_parts.skip_what_holds_no_profile(path)
    whole = timeline(joined.attributed)
    trace = opened(whole)
    found = shown(trace)
    flat = Counter()
    depths = Counter()
    for (category, ts, dur, depth, name, track), n in found.items():
        flat[category, ts, dur, name, track] += n
        if category not in {"phase", "mark"}:
            depths[depth] += n
    assert flat == expected_slices(whole)
    assert depths == nested(whole)
    assert found_flows(trace) == expected_flows(whole.arrows, 0)
    counters = trace.query("select count(*) as n, sum(value) as total from counter")[0]
    values = [
        s.args["value"][s.rows] for s in whole.counters if isinstance(s.args["value"], np.ndarray)
    ]
    assert counters.n == sum(map(len, whole.counters))
    if counters.n:
        assert counters.total == sum(int(v.sum()) for v in values)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pytorch-forward", "memcpy-heavy", "nvfuser"])
def test_arguments_are_those_of_the_timeline(corpus, name):
    whole = timeline(bridge.report.load(corpus / "nsys" / f"{name}.sqlite").attributed)
    expected = Counter()
    for s in whole.slices:
        for row in s.rows.tolist():
            args = {key: one(column, row) for key, column in s.args.items()}
            kept = {key: value for key, value in args.items() if value not in {-1, None}}
            expected[int(s.start[row]), s.kind, json.dumps(kept)] += 1
    found = events(replace(whole, phases=drawn("phase")))
    assert Counter((at, kind, json.dumps(args)) for at, [kind], _, args in found) == expected


def one(column, row):
    """A single value of a column, the slow way."""
    if isinstance(column, NameColumn):
        return column.names[column.codes[row]] if column.codes[row] >= 0 else None
    if isinstance(column, Chain):
        node, names = int(column.node[row]), []
        while node >= 0:
            names.append(column.name.names[column.name.codes[node]])
            node = int(column.parent[node])
        return "/".join(names[::-1]) or None
    return int(column[row])


def replayed(drawing):
    """What a reader makes of the packets: sorted by time, an end closes what was last begun on its track."""
    stacks, found = {}, Counter()
    for p in sorted(decoded(drawing), key=lambda p: p.timestamp):
        event = p.track_event
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == BEGIN:
            stack.append(p.timestamp)
        elif event.type == END:
            start = stack.pop()
            found[start, p.timestamp - start, len(stack)] += 1
    assert not any(stacks.values())
    return found


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=12)


def outer_first(spans):
    return sorted(spans, key=lambda span: (span[0], -span[1]))


@pytest.mark.slow
@given(SPANS)
def test_slices_that_nest_are_read_back_with_their_depths(found):
    nest = []
    for start, end in outer_first({(start, start + size) for start, size in found}):
        if all(end <= e or e <= start for s, e in nest):
            nest += [(start, end)] * (1 + (start + end) % 2)  # some twice
    whole = made(drawn("op", nest))
    again, depths = Counter(), Counter()
    for (start, size, depth), n in replayed(whole).items():
        again[start, start + size] += n
        depths[depth] += n
    assert (again, depths) == (Counter(nest), nested(whole))


@pytest.mark.slow
@given(SPANS)
def test_slices_that_follow_each_other_are_read_back_whatever_their_kinds(found):
    at, spans = 0, ([], [])
    for gap, size in found:
        at += gap % 3
        spans[gap % 2].append((at, at + size))
        at += size
    kernels, copies = (
        drawn(k, outer_first(s), 2) for k, s in zip(("kernel", "memcpy"), spans, strict=True)
    )
    again = Counter(
        (start, start + size) for start, size, _ in replayed(made(kernels, copies)).elements()
    )
    assert again == Counter([*spans[0], *spans[1]])


@pytest.mark.slow
def test_touching_slices_of_two_kinds_and_lengthless_ones_keep_their_times(opened):
    kernels = drawn("kernel", [(0, 10), (20, 30), (30, 30), (30, 40)], 2)
    copies = drawn("memcpy", [(10, 20), (40, 40), (40, 45)], 2)
    ops = drawn("op", [(0, 9), (0, 9), (0, 5), (5, 9), (9, 9), (9, 12), (9, 9)])
    whole = made(ops, kernels, copies)
    found = Counter(row[:3] + row[4:] for row in shown(opened(whole)).elements())
    assert found == expected_slices(whole)


@pytest.mark.slow
def test_more_slices_than_are_written_at_once_stay_in_order(opened):
    count = packets.CHUNK + 1000
    spans = [(10 * n, 10 * n + 10) for n in range(count)]
    within = [(10 * n, 10 * n + 9) for n in range(count)]
    trace = opened(made(drawn("op", spans), drawn("kernel", within, 2)))
    rows = trace.query("select category, count(*) as n, min(dur) as least, max(dur) as most, max(depth) as d"
                       " from slice group by 1 order by 1")  # fmt: skip
    assert rows == [("kernel", count, 9, 9, 0), ("op", count, 10, 10, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000_001, 2**62])
def test_times_are_those_recorded(opened, base):
    whole = made(drawn("kernel", [(base, base + 1), (base + 3, base + 1004)], 2), base=base)
    assert opened(whole).query("select ts, dur from slice") == [(base, 1), (base + 3, 1001)]


@pytest.mark.slow
def test_times_before_zero_are_told_from_the_first_event_on(opened):
    whole = made(drawn("op", [(-5000, 9), (-3, -3)]), base=-5000)
    trace = opened(whole)
    assert trace.query("select ts, dur from slice order by ts") == [(0, 5009), (4997, 0)]
    found = trace.query("select str_value as v from metadata where name = 'cr-base_ns'")
    assert [row.v for row in found] == ["-5000"]


@pytest.mark.slow
def test_names_come_out_as_they_went_in(opened):
    ops = drawn("op", [(n, n + 1) for n in range(len(NAMES))], names=NAMES)
    whole = made(replace(ops, args={"details": NameColumn(ops.name.codes, NAMES)}))
    assert [(name, args["details"]) for _, _, name, args in events(whole)] == [
        (n, n) for n in NAMES
    ]
    query = "select name, extract_arg(arg_set_id, 'debug.details') as d from slice order by ts"
    assert opened(whole).query(query) == [(n, n) for n in NAMES]


def test_what_is_no_unicode_gives_way_to_question_marks_and_nul_stays():
    whole = made(drawn("op", [(0, 1), (1, 2)], names=["a\udcff", "a\0b"]))
    assert [name for _, _, name, _ in events(whole)] == ["a?", "a\0b"]


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, unique=True))
def test_any_text_is_read_back(names):
    ops = drawn("op", [(n, n + 1) for n in range(len(names))], names=names)
    assert [name for _, _, name, _ in events(made(ops))] == names


@pytest.mark.slow
def test_an_op_points_at_each_of_its_calls_and_a_call_at_all_it_launched(opened):
    ops = drawn("op", [(0, 100), (5, 60), (70, 80)])
    calls = drawn("api", [(6, 8), (10, 12), (71, 72), (90, 91), (95, 96)], 1)
    kernels = drawn("kernel", [(100 + 10 * n, 110 + 10 * n) for n in range(7)], 2)
    whole = made(ops, calls, kernels, op=[1, 1, 1, 2, 0, -1, -1], call=[0, 1, 1, 2, 3, 4, -1])
    assert found_flows(opened(whole)) == Counter({
        ("op", 5, "api", 6): 1, ("op", 5, "api", 10): 1, ("op", 70, "api", 71): 1, ("op", 0, "api", 90): 1,
        ("api", 6, "device", 100): 1, ("api", 10, "device", 110): 1, ("api", 10, "device", 120): 1,
        ("api", 71, "device", 130): 1, ("api", 90, "device", 140): 1, ("api", 95, "device", 150): 1,
    })  # fmt: skip


@pytest.mark.slow
def test_phases_overlap_on_one_track_of_their_thread(opened):
    spans = [(0, 100), (50, 150), (60, 70), (60, 70), (100, 100), (150, 200)]
    trace = opened(made(drawn("op", [(0, 200)]), phases=drawn("phase", spans)))
    found = [
        (r.ts, r.ts + r.dur)
        for r in trace.query("select ts, dur from slice where category = 'phase'")
    ]
    assert Counter(found) == Counter(spans)
    assert {row.name for row in trace.query("select name from track where id in"
            " (select track_id from slice where category = 'phase')")} == {"phases"}  # fmt: skip


def test_every_phase_begins_and_ends_when_it_did():
    """Those of one track end in the order in which they began, whatever the order of their ends."""
    found = decoded(made(drawn("op", [(0, 9)]), phases=drawn("phase", [(0, 7), (2, 5), (5, 5)])))
    tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in found}
    events = [
        (p.timestamp, p.track_event.type)
        for p in found
        if p.HasField("track_event") and tracks.get(p.track_event.track_uuid) == "phases"
    ]
    assert Counter(events) == Counter(
        [(0, BEGIN), (2, BEGIN), (5, BEGIN), (5, END), (5, END), (7, END)]
    )


def counter(name, samples, track=0):
    value = [v for _, v in samples]
    codes = np.arange(len(value))
    column = Json(codes, value) if isinstance(value[0], str) else ints(value)
    return drawn("counter", [(t, t) for t, _ in samples], track, [name], value=column)


@pytest.mark.slow
def test_counters_are_drawn_with_every_value_and_their_unit(opened):
    counters = [
        counter("loss", [(0, 3), (1, -1), (2, 0), (3, -(2**40))]),
        counter("loss", [(4, "0.5"), (5, "-2.25e-7"), (6, "[1]"), (7, "NaN"), (8, "1e999")]),
        counter("loss", [(9, 7)], 2),
        counter("GPU busy (%)", [(10, 100)], 2),
    ]
    query = "select t.name, t.unit, c.ts, c.value, t.id from counter c join counter_track t on t.id = c.track_id order by 3"
    found = opened(made(counters=counters)).query(query)
    assert [tuple(row)[:4] for row in found] == [
        ("loss", None, 0, 3), ("loss", None, 1, -1), ("loss", None, 2, 0), ("loss", None, 3, -(2**40)),
        ("loss", None, 4, 0.5), ("loss", None, 5, -2.25e-7), ("loss", None, 9, 7),
        ("GPU busy (%)", "%", 10, 100),
    ]  # fmt: skip
    assert [len({row[4] for row in found[a:b]}) for a, b in ((0, 6), (5, 7))] == [1, 2]


def test_the_largest_integers_of_counters_are_written_whole():
    values = [2**63 - 1, -(2**63)]
    found = decoded(made(counters=[counter("c", list(enumerate(values)))]))
    samples = [p.track_event for p in found if p.track_event.type == COUNTER]
    assert [event.counter_value for event in samples] == values


def test_arguments_that_are_missing_leave_no_trace():
    paths = Chain(
        ints([2, -1, 0, 1, 3]), ints([-1, 0, 1, -1]), NameColumn(ints([0, 1, 0, 1]), ["a", "b/"])
    )
    columns = {
        "path": paths,
        "reason": NameColumn(ints([-1, 0, -1, 1, 1]), ["no_launch", "no_range"]),
        "correlation": ints([7, -1, 2**40, -(2**63), 0]),
        "never": ints([-1] * 5),
        "real": Json(ints([0, -1, 1, 1, -1]), ["0.5", "2"]),
        "grid": ListColumn((ints([1, 2, 3, 4, -1]), ints([1, 1, 1, 1, 1]))),
    }
    spans = [(n, n + 1) for n in range(5)]
    found = [args for *_, args in events(made(drawn("kernel", spans, 2, **columns)))]
    assert found == [
        {"path": "a/b//a", "correlation": 7, "real": "0.5", "grid": [1, 1]},
        {"reason": "no_launch", "grid": [2, 1]},
        {"path": "a", "correlation": 2**40, "real": "2", "grid": [3, 1]},
        {
            "path": "a/b/",
            "reason": "no_range",
            "correlation": -(2**63),
            "real": "2",
            "grid": [4, 1],
        },
        {"path": "b/", "reason": "no_range", "correlation": 0, "grid": [-1, 1]},
    ]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 3)), min_size=1), st.data())
def test_paths_are_the_names_from_the_root_down(tree, data):
    parent = ints([above % (n + 1) - 1 for n, (above, _) in enumerate(tree)])
    name = NameColumn(ints([code for _, code in tree]), ["a", "b", "a/b", "é"])
    node = data.draw(st.lists(st.integers(-1, len(tree) - 1), min_size=1))
    chain = Chain(ints(node), parent, name)
    spans = [(n, n + 1) for n in range(len(node))]
    found = [args.get("path") for *_, args in events(made(drawn("kernel", spans, 2, path=chain)))]
    assert found == [one(chain, row) for row in range(len(node))]


@pytest.mark.slow
def test_instants_have_names_and_no_length(opened):
    whole = made(drawn("op", [(0, 10)]), marks=drawn("mark", [(5, 5), (0, 0)]))
    assert sorted(row[:3] for row in shown(opened(whole))) == [
        ("mark", 0, 0),
        ("mark", 5, 0),
        ("op", 0, 10),
    ]


def test_groups_of_one_rank_stand_in_the_order_of_their_tracks():
    tracks = [Track(Group(1, f"GPU {n}", 5, device=n), 1, "stream", 0) for n in range(50)]
    assert [group.device for group in Descriptors(tracks).of_group] == [*range(50)]


def test_tracks_have_their_numbers_names_parents_and_order():
    found = [p.track_descriptor for p in decoded(made()) if p.HasField("track_descriptor")]
    by_uuid = {d.uuid: d for d in found}
    assert len(by_uuid) == len(found) == 7
    assert (by_uuid[0].process_ordering, by_uuid[0].thread_ordering) == (1, 1)
    [process] = [d for d in found if d.HasField("process")]
    assert (process.process.pid, process.process.process_name) == (77, "python")
    [device] = [d for d in found if d.name == DEVICE.name]
    [thread] = [d for d in found if d.HasField("thread")]
    assert (thread.thread.pid, thread.thread.tid, thread.thread.thread_name) == (77, 78, "main")
    above = {d.name or d.thread.thread_name: (d.parent_uuid, d.sibling_order_rank) for d in found}
    assert above["main"] == (process.uuid, 0)
    assert above["main CUDA API"] == (process.uuid, 50)
    assert above["stream 7"] == (device.uuid, 150)
    assert above["stream 7 ops"] == (device.uuid, 100)
    assert process.child_ordering == device.child_ordering == 3
    assert (process.sibling_order_rank, device.sibling_order_rank) == (0, 1)


@pytest.mark.slow
def test_tracks_of_one_name_stay_apart(opened):
    twins = [replace(STREAM, tid=10_000_010 + n, order=n) for n in range(2)]
    kernels = replace(drawn("kernel", [(0, 10), (20, 30)]), track=ints([0, 1]))
    trace = opened(replace(made(kernels), tracks=twins))
    assert len({row.track_id for row in trace.query("select track_id from slice")}) == 2


def test_no_two_tracks_have_one_number():
    phases = drawn("phase", [(0, 5), (1, 6), (2, 7)])
    counters = [counter("a", [(0, 1), (1, 2)]), counter("b", [(0, 1)])]
    found = decoded(made(phases=phases, counters=counters))
    uuids = [p.track_descriptor.uuid for p in found if p.HasField("track_descriptor")]
    assert len(uuids) == len(set(uuids)) == 1 + 2 + 4 + 3 + 2
    assert {p.track_event.track_uuid for p in found if p.HasField("track_event")} <= set(uuids)


@pytest.mark.slow
def test_the_trace_tells_where_it_comes_from(opened, tmp_path, trace_processor):
    path = tmp_path / "about.pftrace"
    path.write_bytes(bytes_of(made(), ["größe\n.sqlite"], [{"rank": 3}, {}]))
    rows = trace_processor(path).query(
        "select name, str_value from metadata where name glob 'cr-*'"
    )
    assert dict(rows) == {
        "cr-generator": "nsight-bridge",
        "cr-source": '["größe\\n.sqlite"]',
        "cr-metadata": '[{"rank": 3}, {}]',
        "cr-base_ns": "0",
    }


@pytest.mark.slow
def test_nothing_at_all_is_a_trace(opened):
    assert opened(replace(made(), tracks=[])).query("select count(*) from slice") == [(0,)]


def demonstration(tmp_path):
    tmp_path.mkdir(exist_ok=True)
    demo_report.make(tmp_path / "demo.sqlite")
    return timeline(bridge.report.load(tmp_path / "demo.sqlite").attributed)


@pytest.mark.slow
def test_the_same_report_gives_the_same_bytes(tmp_path):
    assert bytes_of(demonstration(tmp_path / "1")) == bytes_of(demonstration(tmp_path / "2"))


@pytest.mark.slow
def test_the_demonstration_loads_in_the_perfetto_ui(perfetto_ui, tmp_path):
    whole = demonstration(tmp_path)
    path = tmp_path / "t.pftrace"
    path.write_bytes(bytes_of(whole))
    perfetto_ui.open(path)
    assert not perfetto_ui.errors
    kernels = perfetto_ui.sql("select count(*) as n from slice where category = 'kernel'")
    assert kernels == [{"n": 112}]
    tracks = perfetto_ui.tracks()
    assert "python 4242" in tracks  # the viewer adds the number
    [device] = {track.group.name for track in whole.tracks if track.group.name.startswith("GPU 0")}
    order = [
        track.name
        for track in sorted(whole.tracks, key=lambda t: t.order)
        if track.group.name == device
    ]
    assert device in tracks
    assert [name for name in tracks if name in order] == order
