"""Synchronizations and event records: kinds, times, and what stands for nothing."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest
import real_parts
from join.plain_writer import CALLS, KERNELS, PID, write

from bridge.importers import frames, load
from bridge.importers.capture import concat

SYNCS, EVENTS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
OTHER = 8 << 24
NONE = 4_294_967_295
NO_REPORTS = ("failed-export", "no-kernels-osrt")  # of the corpus: nothing is recorded in them


OF_CALL = {  # the kinds of the calls in the corpus, whatever nsys recorded
    "cudaDeviceSynchronize_v3020": "context", "cuCtxSynchronize": "context",
    "cudaStreamSynchronize_v3020": "stream", "cudaStreamWaitEvent_v3020": "stream_wait",
    "cudaEventQuery_v3020": "event", "cudaEventSynchronize_v3020": "event",
}  # fmt: skip


@pytest.fixture
def waits(tmp_path):
    """Write an export with a kernel and these tables, and give its waits."""
    kernel = {"start": 1, "end": 2, "globalPid": PID, "correlationId": 1}
    return lambda tables: load(
        write(tmp_path / "r.sqlite", {KERNELS: [kernel], **tables})
    ).waits.to_pandas()


def sync(**more):
    row = {"start": 10, "end": 30, "deviceId": 0, "contextId": 1, "streamId": NONE}
    row |= {"correlationId": 5, "globalPid": PID, "syncType": 1, "eventId": NONE}
    return {**row, **more}


def event(**more):
    row = {"timestamp": 0, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 5}
    return {**row, "globalPid": PID, "eventId": 2, **more}


def call(start, end=99, process=PID, correlation=5):
    return {"start": start, "end": end, "globalTid": process | 3, "correlationId": correlation}


def test_a_synchronization_says_all_it_knows(waits):
    found = waits({SYNCS: [sync(), sync(streamId=13, eventId=3, syncType=2)]})
    columns = "start end process device context stream correlation event report".split()
    assert found[columns].values.tolist() == [
        [10, 30, PID, 0, 1, -1, 5, -1, 0],
        [10, 30, PID, 0, 1, 13, 5, 3, 0],
    ]
    assert found["kind"].tolist() == ["event", "stream_wait"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [*range(5), 5, 99, -1, None])
def test_kinds_by_their_numbers(waits, number):
    found = waits({SYNCS: [sync(syncType=number)]})
    known = number if number in range(5) else 0
    assert found["kind"].tolist() == [frames.WAIT_KINDS[known]]
    assert tuple(found["kind"].cat.categories) == frames.WAIT_KINDS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize_v3020", "context"), ("cuCtxSynchronize", "context"),
        ("cudaStreamSynchronize_ptsz_v7000", "stream"), ("cuStreamQuery", "stream"),
        ("cudaEventQuery_v3020", "event"), ("cuEventSynchronize", "event"),
        ("cudaStreamWaitEvent_v3020", "stream_wait"), ("cudaFree_v3020", "unknown"),
        ("cudaEventQueryLater", "unknown"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("recorded", [0, 1, 2])
def test_the_call_tells_the_kind_where_nsys_errs(waits, name, kind, recorded):
    named = {CALLS: [{**call(10), "nameId": 1}], "StringIds": [{"id": 1, "value": name}]}
    found = waits({SYNCS: [sync(syncType=recorded)], **named})
    expected = frames.WAIT_KINDS[recorded] if kind == "unknown" else kind
    assert found["kind"].tolist() == [expected]


@pytest.mark.slow
def test_a_synchronization_that_never_ended_is_no_time(waits):
    assert waits({SYNCS: [sync(end=None)]})[["start", "end"]].values.tolist() == [[10, 9]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "times"),
    [
        ([call(20, 25)], [20, 25]),
        ([call(20, 25), call(18, 40), call(21, 22)], [18, 40]),
        ([call(20, 25, process=OTHER), call(30, 31)], [30, 31]),
        ([call(20, 25, process=OTHER), call(20, 25, correlation=6)], [-1, -1]),
        ([], [-1, -1]),
    ],
)
def test_an_event_is_recorded_when_its_call_ran(waits, calls, times):
    found = waits({EVENTS: [event()], CALLS: calls})
    assert found[["start", "end"]].values.tolist() == [times]
    assert found[["kind", "stream", "event"]].values.tolist() == [["event_record", 7, 2]]


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0, None, -1])
def test_an_event_without_a_correlation_is_of_no_call(waits, correlation):
    calls = [call(20, correlation=c) for c in (0, -1, None)]
    found = waits({EVENTS: [event(correlationId=correlation)], CALLS: calls})
    assert found[["start", "end"]].values.tolist() == [[-1, -1]]


@pytest.mark.slow
def test_a_wait_without_process_is_of_the_only_one(waits):
    tables = {
        EVENTS: [event(globalPid=None)], SYNCS: [sync(globalPid=None)], CALLS: [call(20, 25)]
    }  # fmt: skip
    found = waits(tables)
    assert found["process"].tolist() == [PID, PID]
    assert found["start"].tolist() == [10, 20]


@pytest.mark.slow
def test_waits_are_no_part_of_the_span(tmp_path):
    rows = {CALLS: [call(20, 25)], SYNCS: [sync(start=1, end=900)], EVENTS: [event(eventId=NONE)]}
    assert load(write(tmp_path / "r.sqlite", rows)).facts[0].span == (20, 25)


@pytest.mark.slow
def test_without_details_they_are_not_read(tmp_path):
    path = write(tmp_path / "r.sqlite", {CALLS: [call(20)], SYNCS: [sync()], EVENTS: [event()]})
    assert len(load(path).waits) == 2
    found = load(path, details=False).waits.to_pandas()
    assert not len(found)
    assert list(found.columns) == list(frames.FRAMES["waits"].types)
    assert tuple(found["kind"].cat.categories) == frames.WAIT_KINDS


@pytest.mark.slow
def test_kinds_mean_the_same_in_every_report(tmp_path):
    some = ({SYNCS: [sync(syncType=4)]}, {EVENTS: [event()]}, {SYNCS: [sync(syncType=3)]}, {})
    reports = [
        load(write(tmp_path / f"{n}.sqlite", {CALLS: [call(20)], **tables}))
        for n, tables in enumerate(some)
    ]
    found = concat(reports).waits
    assert found["kind"].tolist() == ["context", "event_record", "stream"]
    assert found["report"].tolist() == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_every_wait_of_a_real_report_is_there(path):
    if path.stem in NO_REPORTS:
        return
    found = load(path).waits.to_pandas()
    rows = {kind: int((found["kind"] == kind).sum()) for kind in frames.WAIT_KINDS}
    calls = set()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as export:
        tables = {name for (name,) in export.execute("SELECT name FROM sqlite_master")}
        said = dict.fromkeys(frames.WAIT_KINDS, 0)
        if SYNCS in tables:
            sql = (
                f"SELECT s.syncType, (SELECT n.value FROM {CALLS} c JOIN StringIds n ON n.id = c.nameId WHERE"
                " c.correlationId = s.correlationId AND c.globalTid & -16777216 = s.globalPid ORDER BY c.start)"
                f" FROM {SYNCS} s"
            )
            said |= Counter(
                OF_CALL.get(name, frames.WAIT_KINDS[kind]) for kind, name in export.execute(sql)
            )
        if EVENTS in tables:
            [(said["event_record"],)] = export.execute(f"SELECT count(*) FROM {EVENTS}")
        if CALLS in tables:
            calls = set(
                export.execute(
                    f"SELECT globalTid & -16777216, correlationId, start, end FROM {CALLS}"
                )
            )
    assert rows == said
    assert not {NONE} & {*found["stream"], *found["event"]}
    records = found[(found["kind"] == "event_record") & (found["start"] >= 0)]
    keys = records[["process", "correlation", "start", "end"]].values.tolist()
    assert {tuple(key) for key in keys} <= calls
    if calls:
        known = {key[:2] for key in calls}
        unknown = found[(found["kind"] == "event_record") & (found["start"] < 0)]
        assert not known & {*map(tuple, unknown[["process", "correlation"]].values.tolist())}
