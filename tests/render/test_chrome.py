"""The trace as the real viewers read it: nothing dropped, nothing moved by a nanosecond."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest
import real_parts

import bridge.report
from bridge.analyze.draw.timeline import timeline
from bridge.importers import ReportError
from bridge.importers.nsys.write import Strings, write_export
from bridge.render.chrome import chrome

PROCESS = 77 << 24
THREAD = PROCESS | 77


def trace_of(joined, path):
    with gzip.open(path, "wb") as file:
        for piece in chrome(timeline(joined.attributed), joined.capture.source):
            file.write(piece)
    return path


def events_of(joined):
    text = b"".join(chrome(timeline(joined.attributed), joined.capture.source))
    return json.loads(text)


@pytest.fixture
def awkward(tmp_path):
    """A report with everything that viewers trip over."""
    strings = Strings()
    kernel = {"device": 0, "context": 1, "process": PROCESS, "grid_x": 7}

    def op(start, end, text, domain=0, kind=59):
        return {
            "start": start,
            "end": end,
            "type": kind,
            "thread": THREAD,
            "domain": domain,
            "text": text,
        }

    def ran(start, end, stream=7, correlation=1, name="k"):
        return kernel | {
            "start": start, "end": end, "stream": stream, "correlation": correlation,
            "name": strings(name), "full_name": strings(name), "mangled": strings(name),
        }  # fmt: skip

    names = (
        'say "hi"',
        "back\\slash",
        "größe ✓ 🚀",
        "new\nline\ttab",
        "nul\x00 and \x07 bell",
        "a/b, c = [1]",
    )
    annotations = [
        *(op(1000 + 200 * n, 1150 + 200 * n, name) for n, name in enumerate(names)),
        op(-5000, 9000, "before the start"),
        op(3000, 5000, "crosses"), op(4000, 6000, "is crossed", domain=1),
        op(3500, 4500, "crosses within"), op(3600, 5500, "its domain"),
        op(7000, 7000, "no length"), op(7000, 7000, "no length twin"),
        op(7100, 7300, "same"), op(7100, 7300, "same"),
        op(2000, 8000, "phase", kind=60), op(2500, 9500, "overlapping phase", kind=60),
        {"start": 4242, "type": 34, "thread": THREAD, "text": "a mark"},
    ]  # fmt: skip
    launches = [
        {
            "start": 2000 + 10 * n,
            "end": 2000 + 10 * n + (n != 3) * 10,
            "thread": THREAD,
            "correlation": n,
            "name": strings("cudaLaunchKernel_v7000"),
        }
        for n in range(1, 8)
    ]
    kernels = [
        ran(3000, 4000, correlation=1), ran(3999, 4500, correlation=2), ran(3500, 3600, correlation=3),
        ran(4600, 4600, correlation=4), ran(4600, 4600, correlation=5), ran(4600, 4700, correlation=6),
        ran(5000, 4000, correlation=7), ran(6000, 6001, correlation=99),
        ran(3000, 4000, stream=-(2**62), correlation=1, name='template<"x">'),
    ]  # fmt: skip
    path = tmp_path / "awkward.sqlite"
    tables = {"annotations": annotations, "launches": launches, "kernels": kernels}
    write_export(path, {**tables, "strings": strings.rows()})
    return bridge.report.load(path)


def counts(joined):
    """How many slices of each category a report must show; projections, steps, overhead and OS calls have tests of their own."""
    report = joined.capture
    stacked = report.ranges["kind"] == "push_pop"
    found = Counter(report.activities["kind"])
    found |= {"op": int(stacked.sum()), "api": len(report.launches), "phase": int((~stacked).sum())}
    found |= {"mark": len(report.marks), "step": len(joined.attributed.steps)}
    drawn = {s.kind: len(s) for s in timeline(joined.attributed).slices}
    found |= {kind: drawn.get(kind, 0) for kind in ("projection", "overhead", "osrt", "gil")}
    return {kind: n for kind, n in found.items() if n}


def arrows(attributed, base):
    """Every arrow: from an op to each of its API calls that launch anything, from there to what it launches."""
    found, report = attributed.attribution, attributed.capture
    start, end = (
        {n: t[c] for n, t in (("op", report.ranges), ("api", report.launches))}
        for c in ("start", "end")
    )
    began = report.activities.start
    expected, calls = Counter(), {}
    for row, (call, node) in enumerate(
        zip(found.launch.tolist(), found.launched_in.tolist(), strict=True)
    ):
        if call != -1:
            length = max(int(end["api"][call] - start["api"][call]), 0)
            if began[row] >= start["api"][call]:  # viewers draw no arrow back in time
                expected["api", int(start["api"][call]) - base, length, int(began[row]) - base] += 1
            if node != -1:
                calls[call] = int(found.nesting.range[node])
    for call, op in calls.items():
        length = int(end["op"][op] - start["op"][op])
        expected["op", int(start["op"][op]) - base, length, int(start["api"][call]) - base] += 1
    return expected


def check_in(trace, joined):
    """Hold what the trace processor read against the frames."""
    from viewers.trace_processor import check_trace

    check_trace(trace)
    shown = trace.query("select category, count(*) as n from slice group by 1")
    assert {row.category: row.n for row in shown} == counts(joined)
    ends = trace.query(
        "select o.category as kind, o.ts as out_ts, o.dur as out_dur, i.ts as in_ts, i.category as to_kind"
        " from flow f join slice o on o.id = f.slice_out join slice i on i.id = f.slice_in"
    )
    attributed, base = joined.attributed, timeline(joined.attributed).base
    found = Counter((e.kind, e.out_ts, e.out_dur, e.in_ts) for e in ends)
    assert {(e.kind, e.to_kind) for e in ends if e.kind == "op"} <= {("op", "api")}
    assert found == arrows(attributed, base)
    times = trace.query(
        "select sum(ts) as at, sum(dur) as dur from slice where category in ('kernel', 'memcpy', 'memset', 'graph')"
    )[0]
    activities = joined.capture.activities
    start, end = activities.start, activities.end
    base = timeline(joined.attributed).base
    if len(activities):
        assert (times.at, times.dur) == (
            int((start - base).sum()),
            int(np.maximum(end - start, 0).sum()),
        )


@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_real_reports_load_whole(path, trace_processor, tmp_path):
    try:
        joined = bridge.report.load(path)
    except ReportError:
        real_parts.skip_what_holds_no_profile(path)
    check_in(trace_processor(trace_of(joined, tmp_path / "t.json.gz")), joined)


@pytest.mark.slow
def test_what_viewers_trip_over_loads_whole(awkward, trace_processor, tmp_path):
    trace = trace_processor(trace_of(awkward, tmp_path / "t.json.gz"))
    check_in(trace, awkward)
    names = {row.name for row in trace.query("select name from slice where category = 'op'")}
    # Perfetto v52 shows the escapes of some names as they are written; JSON leaves no other way to write them.
    assert {'say "hi"', "back\\\\slash", "größe ✓ 🚀", "a/b, c = [1]", "new\\nline\\ttab"} <= names


@pytest.mark.slow
def test_names_survive_json(awkward):
    names = {e["name"] for e in events_of(awkward)["traceEvents"] if e.get("cat") == "op"}
    assert {
        'say "hi"',
        "back\\slash",
        "größe ✓ 🚀",
        "new\nline\ttab",
        "nul\x00 and \x07 bell",
    } <= names


@pytest.mark.slow
def test_the_demonstration_loads_in_the_perfetto_ui(perfetto_ui, demo, tmp_path):
    joined = bridge.report.load(demo)
    perfetto_ui.open(trace_of(joined, tmp_path / "t.json.gz"))
    assert not perfetto_ui.errors
    assert perfetto_ui.sql("select count(*) as n from slice where category = 'kernel'") == [
        {"n": 112}
    ]
    tracks = " ".join(perfetto_ui.tracks())
    assert "python 4242" in tracks  # the viewer adds the number
    assert "GPU 0 Imaginary GPU, python 4242" in tracks


@pytest.mark.slow
def test_times_are_exact_decimals(awkward):
    base = -5000
    text = b"".join(chrome(timeline(awkward.attributed), ["x"])).decode()
    assert json.loads(text)["otherData"]["base_ns"] == str(base)
    text = text.replace(" ", "")  # numbers are padded by spaces
    kernels = [line for line in text.splitlines() if '"cat":"kernel"' in line]
    assert '"ts":8.000,"dur":1.000,' in kernels[0]
    assert any('"ts":9.600,"dur":0.000,' in line for line in kernels)
    assert any('"ts":10.000,"dur":0.000,' in line for line in kernels)  # it ends before it starts


@pytest.mark.slow
def test_slices_of_a_track_nest_and_parents_come_first(awkward):
    tracks = {}
    for event in events_of(awkward)["traceEvents"]:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            tracks.setdefault((event["pid"], event["tid"]), []).append(
                (start, start + round(event["dur"] * 1000))
            )
    for slices in tracks.values():
        assert slices == sorted(slices, key=lambda s: (s[0], -s[1]))
        for n, (_, end) in enumerate(slices):
            assert all(
                end <= other_start or other_end <= end for other_start, other_end in slices[n + 1 :]
            )


@pytest.mark.slow
def test_kernels_name_their_op_path_or_reason(awkward):
    kernels = [e["args"] for e in events_of(awkward)["traceEvents"] if e.get("cat") == "kernel"]
    assert all(("op" in args) != ("reason" in args) for args in kernels)
    assert {args.get("reason") for args in kernels} == {None, "no_launch", "invalid_time"}
    owned = next(args for args in kernels if "op" in args)
    assert (
        owned["path"] == "before the start/" + owned["op"]
        if owned["op"] != "before the start"
        else True
    )


@pytest.mark.slow
def test_arrows_and_phases_are_numbered_apart(awkward):
    events = events_of(awkward)["traceEvents"]
    starts = [e for e in events if e["ph"] == "s"]
    ends = [e for e in events if e["ph"] == "f"]
    assert sorted(e["id"] for e in starts) == [e["id"] for e in ends]
    bound = [e for e in events if e.get("cat") == "kernel" and "bind_id" in e]
    assert len({e["id"] for e in starts}) == len(starts)
    assert (len(starts), len(bound)) == (7, 1)  # one is the only call of its op
    leaving = {e["bind_id"] for e in events if e.get("flow_out")}
    arriving = [e["bind_id"] for e in events if e.get("flow_in")]
    assert set(arriving) == leaving
    assert len(arriving) >= len(leaving) > 0
    assert not leaving & {e["id"] for e in starts}
    assert all(e["bp"] == "e" for e in ends)
    phases = [e["id2"]["local"] for e in events if e["ph"] == "b"]
    assert len(set(phases)) == 2
    assert sorted(phases) == sorted(e["id2"]["local"] for e in events if e["ph"] == "e")


@pytest.mark.slow
def test_no_letter_is_escaped(awkward):
    """Viewers fail on pairs of surrogates, as emoji would be."""
    assert b"\\ud" not in b"".join(chrome(timeline(awkward.attributed), ["x"]))


@pytest.mark.slow
def test_the_same_report_gives_the_same_bytes(awkward):
    once, again = (b"".join(chrome(timeline(awkward.attributed), ["x"])) for _ in range(2))
    assert once == again


def one(tmp_path, **tables):
    path = tmp_path / "one.sqlite"
    write_export(path, {**tables, "strings": []})
    return bridge.report.load(path)


def args_of(joined, kind):
    events = events_of(joined)["traceEvents"]
    return [e.get("args", {}) for e in events if e.get("cat") == kind and e["ph"] == "X"]


@pytest.mark.slow
def test_payloads_of_every_size_are_printed_and_missing_ones_are_not(tmp_path):
    """The least integer has no positive twin: to print it once took for ever."""
    payloads = [-(2**63), 2**63 - 1, 0, None, (0x4E42 << 48) + 7]
    ranges = [
        {
            "start": n,
            "end": 100 - n,
            "type": 59,
            "thread": THREAD,
            "text": f"r{n}",
            "payload": payload,
        }
        for n, payload in enumerate(payloads)
    ]
    shown = args_of(one(tmp_path, annotations=ranges), "op")
    assert [a.get("payload") for a in shown] == [-(2**63), 2**63 - 1, 0, None, None]
    assert [a.get("call id") for a in shown] == [None, None, None, None, 7]


@pytest.mark.slow
def test_copies_tell_their_memories_and_ranges_whether_they_never_ended(tmp_path):
    where = {"start": 50, "end": 60, "process": PROCESS, "stream": 7}
    copy = {**where, "copy_kind": 1, "source_kind": 1, "target_kind": 2}
    ended = {"start": 1, "end": 9, "thread": THREAD, "type": 59, "text": "ended"}
    never = {"start": 1, "end": None, "thread": THREAD, "type": 60, "text": "never"}
    joined = one(tmp_path, copies=[copy, where], annotations=[ended, never])
    first, second = args_of(joined, "memcpy")
    assert (first["source memory kind"], first["destination memory kind"]) == ("pinned", "device")
    assert not {"source memory kind", "destination memory kind"} & set(second)
    events = events_of(joined)["traceEvents"]
    assert [e["args"] for e in events if e.get("cat") == "phase" and e["ph"] == "b"] == [
        {"kind": "phase", "open": 1}
    ]
    assert all("open" not in args for args in args_of(joined, "op"))


def counted(tmp_path):
    where = {"type": 34, "thread": THREAD}
    samples = [
        {**where, "start": 10 * n, "text": 'counter:queue "a"', "payload": value}
        for n, value in enumerate((3, -1, 0, 2**63 - 1))
    ]
    samples += [
        {**where, "start": 50 + n, "text": "counter:loss", "number": value}
        for n, value in enumerate((0.5, -2.25e-7))
    ]
    step = {**where, "type": 59, "start": 0, "end": 99, "text": "step"}
    return one(tmp_path, annotations=[step, *samples, {**where, "start": 60, "text": "a mark"}])


@pytest.mark.slow
def test_counters_are_drawn_with_every_value(tmp_path):
    events = events_of(counted(tmp_path))["traceEvents"]
    samples = [(e["name"], e["args"]["value"]) for e in events if e["ph"] == "C"]
    assert samples == [
        *(('queue "a"', value) for value in (3, -1, 0, 2**63 - 1)),
        ("loss", 0.5),
        ("loss", -2.25e-7),
    ]
    assert [e["name"] for e in events if e["ph"] == "i"] == ["a mark"]


@pytest.mark.slow
def test_samples_of_several_threads_are_in_order_of_time(tmp_path):
    """And a counter that has any real has all its values as one kind: catapult sorts none."""
    samples = [(30, 1, 3, None), (10, 2, None, 0.5), (20, 1, 1, None), (40, 2, 4, None)]
    marks = [
        {"type": 34, "thread": THREAD + thread, "start": at, "text": "counter:loss", "payload": whole, "number": real}
        for at, thread, whole, real in samples
    ]  # fmt: skip
    marks.append({"type": 59, "thread": THREAD, "start": 0, "end": 99, "text": "step"})
    marks += [
        {"type": 34, "thread": THREAD + t, "start": t, "text": "counter:n", "payload": t}
        for t in (3, 1, 2)
    ]
    events = [
        e for e in events_of(one(tmp_path, annotations=marks))["traceEvents"] if e["ph"] == "C"
    ]
    by_name = {
        n: [(round(e["ts"] * 1000), e["args"]["value"]) for e in events if e["name"] == n]
        for n in ("loss", "n")
    }
    assert by_name["n"] == [(1, 1), (2, 2), (3, 3)]
    assert by_name["loss"] == [(10, 0.5), (20, 1), (30, 3), (40, 4)]


@pytest.mark.slow
def test_counters_load_in_the_trace_processor(tmp_path, trace_processor):
    trace = trace_processor(trace_of(counted(tmp_path), tmp_path / "t.json.gz"))
    rows = trace.query(
        "select t.name as name, c.ts as ts, c.value as value from counter c"
        " join counter_track t on c.track_id = t.id order by c.ts"
    )
    assert [row.ts for row in rows] == [0, 10, 20, 30, 50, 51]
    assert [row.value for row in rows] == [3, -1, 0, 2**63, 0.5, -2.25e-7]


@pytest.mark.slow
def test_what_never_ended_is_drawn_without_length(tmp_path):
    kernel = {"start": 50, "end": None, "process": PROCESS, "correlation": 3, "stream": 7}
    joined = one(tmp_path, kernels=[kernel, {**kernel, "end": 60, "correlation": None}])
    kernels = [e for e in events_of(joined)["traceEvents"] if e.get("cat") == "kernel"]
    assert sorted(e["dur"] for e in kernels) == [0, 0.01]
    assert [e["args"].get("correlation") for e in kernels].count(None) == 1
    assert joined.totals["unattributed"]["invalid_time"] == {"activities": 1, "gpu_ns": 0}


def test_marks_centuries_away_are_left_out(tmp_path):
    marks = [{"start": t, "type": 34, "thread": THREAD, "text": "m"} for t in (-(2**62), 2, 2**62)]
    joined = one(
        tmp_path,
        annotations=[*marks, {"start": 0, "end": 5, "type": 59, "thread": THREAD, "text": "r"}],
    )
    drawn = [e for e in events_of(joined)["traceEvents"] if e.get("cat") == "mark"]
    assert [event["ts"] for event in drawn] == [0.002]
    (line,) = (line for line in joined.capture.warnings if "no capture has" in line)
    assert (
        line == "one.sqlite: 2 instants, samples and calls at times that no capture has: left out"
    )
