"""The viewers are only worth asking if they load a right trace and complain about a wrong one."""

import json

import pytest


def slice_(name, ts, dur, pid=1, tid=1, **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def process(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def arrow(ts_from, ts_to):
    """Draw an arrow from the slice of process 1 to the one of process 2."""
    both = {"id": 1, "name": "launch", "cat": "launch", "tid": 1}
    start = both | {"ph": "s", "pid": 1, "ts": ts_from}
    return [start, both | {"ph": "f", "bp": "e", "pid": 2, "ts": ts_to}]


RIGHT = [
    process(1, "train.py"),
    process(2, "GPU 0"),
    slice_("step", 0, 100),
    slice_("aten::mm", 10.001, 20, op="größe ✓"),
    slice_("sgemm", 50, 40, pid=2),
    *arrow(10.001, 50),
]
OVERLAPPING = [slice_("first", 0, 10), slice_("second", 5, 10)]


@pytest.fixture
def written(tmp_path):
    """Write events to a trace file."""

    def write(events):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}, ensure_ascii=False), encoding="utf-8")
        return path

    return write


def check(trace):
    from viewers.trace_processor import check_trace

    check_trace(trace)


def test_a_right_trace_is_read_whole(trace_processor, written):
    trace = trace_processor(written(RIGHT))
    check(trace)
    slices = "select name, ts, dur, depth, extract_arg(arg_set_id, 'args.op') as op from slice order by ts"
    assert trace.query(slices) == [
        ("step", 0, 100_000, 0, None),
        ("aten::mm", 10_001, 20_000, 1, "größe ✓"),
        ("sgemm", 50_000, 40_000, 0, None),
    ]
    ends = "select o.name as o, i.name as i from flow join slice o on o.id = slice_out join slice i on i.id = slice_in"
    assert trace.query(ends) == [("aten::mm", "sgemm")]
    pids = trace.query("select pid from process where pid > 0 order by pid")
    assert [row.pid for row in pids] == [1, 2]


def test_overlapping_slices_fail_the_check(trace_processor, written):
    trace = trace_processor(written(OVERLAPPING))
    with pytest.raises(AssertionError, match="slice_drop_overlapping_complete_event"):
        check(trace)


def test_a_broken_file_and_a_wrong_query_are_refused(trace_processor, written, tmp_path):
    from viewers.trace_processor import Unreadable

    broken = tmp_path / "broken.json"
    broken.write_text("neither JSON nor a trace")
    with pytest.raises(Unreadable):
        trace_processor(broken)
    trace = trace_processor(written(RIGHT))
    with pytest.raises(Unreadable, match="no such table"):
        trace.query("select * from nowhere")
    assert trace.query("select count(*) from slice") == [(3,)]


def test_out_of_time_is_an_error_and_leaves_no_process(trace_processor, written):
    from viewers.trace_processor import TraceProcessor

    with pytest.raises(ConnectionError, match="ran out of time"):
        TraceProcessor(written(RIGHT), limit=0.001)


def test_the_ui_shows_a_right_trace(perfetto_ui, written, tmp_path):
    perfetto_ui.open(written(RIGHT))
    ends = perfetto_ui.sql("select count(*) as n, max(ts + dur) as last from slice")
    assert ends == [{"n": 3, "last": 100_000}]
    assert any("train.py" in track for track in perfetto_ui.tracks())
    perfetto_ui.command("dev.perfetto.ExpandAllGroups")
    [op] = perfetto_ui.sql("select id from slice where name = 'aten::mm'")
    perfetto_ui.select("slice", op["id"])
    assert "größe ✓" in perfetto_ui.text()
    perfetto_ui.shot(tmp_path / "shot.png")
    assert (tmp_path / "shot.png").stat().st_size > 10_000
    assert perfetto_ui.errors == []
