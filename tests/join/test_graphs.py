"""Work of CUDA graphs belongs where its nodes were captured, or where the graph was launched."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bridge
from bridge.importers.nsys.write import Strings, write_export
from bridge.join.attribution import NodeEvents, creation_of

pytestmark = pytest.mark.slow


PROCESS, OTHER = 50 << 24, 60 << 24
MAIN, ELSEWHERE = PROCESS | 50, OTHER | 60
NOTHING = -1


def op(start, end, text, thread=MAIN):
    return {"start": start, "end": end, "type": 59, "thread": thread, "text": text}


def made(time, node, original=None, thread=MAIN):
    return {"time": time, "thread": thread, "node": node, "original": original}


@pytest.fixture
def tables():
    """A capture under three ops, two replays under another, and a second process with the same numbers."""
    strings = Strings()
    kernel = {
        "device": 0,
        "context": 1,
        "stream": 7,
        "name": strings("k"),
        "full_name": strings("k"),
    }

    def ran(at, correlation, node, process=PROCESS, **more):
        times = {"start": at, "end": at + 10}
        return (
            kernel
            | times
            | {"process": process, "correlation": correlation, "graph_node": node}
            | more
        )

    def call(at, correlation, name, thread=MAIN):
        named = {"name": strings(name), "thread": thread}
        return {"start": at, "end": at + 5, "correlation": correlation, **named}

    return {
        "annotations": [
            op(0, 100, "capture"), op(10, 50, "layer"), op(50, 90, "loss"), op(200, 400, "replay"),
            op(0, 100, "foreign capture", ELSEWHERE), op(200, 400, "foreign replay", ELSEWHERE),
        ],
        "launches": [
            call(20, 1, "cudaLaunchKernel"), call(60, 2, "cudaLaunchKernel"),  # captured: no kernel of its own
            call(210, 7, "cudaGraphLaunch"), call(310, 8, "cudaGraphLaunch"),
            call(210, 7, "cudaGraphLaunch", ELSEWHERE), call(500, 9, "cudaGraphLaunch"),
        ],
        "kernels": [
            ran(220, 7, 11), ran(230, 7, 12), ran(320, 8, 11), ran(330, 8, 12),
            ran(340, 8, 99),  # made before the capture began
            ran(350, 8, None),  # no part of the graph
            ran(360, 8, 21),  # a copy of itself, which no driver writes
            ran(220, 7, 11, OTHER),
            ran(510, 9, 11), ran(520, 9, 99),  # launched outside every op
            ran(530, 10, 12),  # no record of its launch
        ],
        "copies": [{"start": 240, "end": 260, "process": PROCESS, "correlation": 7, "graph_node": 12, "bytes": 8}],
        "graph_nodes": [
            made(20, 1), made(60, 2), made(95, 11, 1), made(96, 12, 2), made(97, 21, 21),
            made(30, 11, thread=ELSEWHERE),
        ],
        "strings": strings.rows(),
    }  # fmt: skip


def ops(path, **how):
    return bridge.load(path, **how).op_kernels["op"].astype(object).fillna("").tolist()


CAPTURED = [
    "layer", "loss", "layer", "loss", "replay", "replay", "replay", "foreign capture", "layer", "", "loss", "loss",
]  # fmt: skip
LAUNCHED = ["replay"] * 7 + ["foreign replay", "", "", "", "replay"]


def test_work_of_a_graph_belongs_where_it_was_captured(tables, tmp_path):
    path = tmp_path / "graph.sqlite"
    write_export(path, tables)
    assert ops(path) == ops(path, graphs="capture") == CAPTURED


def test_or_where_the_graph_was_launched(tables, tmp_path):
    path = tmp_path / "graph.sqlite"
    write_export(path, tables)
    # Where no call is known, what is known of the capture still counts.
    assert ops(path, graphs="launch") == [
        of or (captured if n in (8, 10) else "")
        for n, (of, captured) in enumerate(zip(LAUNCHED, CAPTURED, strict=True))
    ]


def test_the_rule_is_told(tables, tmp_path):
    path = tmp_path / "graph.sqlite"
    write_export(path, tables)
    rules = bridge.load(path).op_kernels["rule"].tolist()
    assert rules == ["capture"] * 4 + ["launch"] * 3 + [
        "capture",
        "capture",
        "",
        "capture",
        "capture",
    ]


def test_raw_texts_go_by_the_launch_as_nvidias_reports_do(tables, tmp_path):
    path = tmp_path / "graph.sqlite"
    write_export(path, tables)
    assert ops(path, raw=True) == ops(path, raw=True, graphs="launch")
    assert ops(path, raw=True, graphs="capture") == CAPTURED


def test_the_older_name_of_the_table_serves_too(tables, tmp_path):
    path = tmp_path / "old.sqlite"
    write_export(path, {**tables, "graph_nodes_old": tables["graph_nodes"], "graph_nodes": []})
    assert ops(path) == CAPTURED


def test_events_of_whole_graphs_are_no_nodes(tables, tmp_path):
    path = tmp_path / "new.sqlite"
    write_export(path, tables)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE CUDA_GRAPH_EVENTS (start INTEGER, globalTid INTEGER, graphId INTEGER)"
        )
        db.execute("INSERT INTO CUDA_GRAPH_EVENTS VALUES (5, 6, 7)")
    assert ops(path) == CAPTURED


def test_a_report_without_node_events_goes_by_the_launch(tables, tmp_path):
    path = tmp_path / "none.sqlite"
    write_export(path, {name: rows for name, rows in tables.items() if name != "graph_nodes"})
    assert ops(path) == LAUNCHED


def test_graphs_recorded_as_a_whole_are_told_of(corpus):
    report = bridge.load(corpus / "nsys" / "torch-compile-graphs.sqlite").capture
    assert "10 CUDA graph launches are recorded as a whole" in report.warnings[-1]
    assert "--cuda-graph-trace=node" in report.warnings[-1]


def brute(asked, events):
    """Follow copies one by one."""
    process, node = asked
    for _ in range(100):
        own = [
            (time, n)
            for n, (p, made, original, time) in enumerate(events)
            if (p, made) == (process, node)
        ]
        firsts = [(time, n) for time, n in own if events[n][2] == NOTHING]
        if firsts:
            return min(firsts)[1]
        if not own:
            return NOTHING
        node = events[min(own)[1]][2]
    return NOTHING


nodes = st.integers(1, 6)
events = st.lists(
    st.tuples(st.integers(1, 2), nodes, st.sampled_from([NOTHING, NOTHING, 1, 2, 3, 4, 5, 6]), st.integers(0, 30)),
    max_size=12,
    unique_by=lambda event: event[3],
)  # fmt: skip


@given(events, st.lists(st.tuples(st.integers(1, 2), nodes), min_size=1, max_size=6))
def test_copies_are_followed_to_the_first(events, asked):
    columns = [np.array(c, np.int64) for c in zip(*events, strict=True)] or [
        np.empty(0, np.int64)
    ] * 4
    process, made, original, time = columns
    known = NodeEvents(np.zeros_like(process), process, made, original, time)
    own, node = (np.array(c, np.int64) for c in zip(*asked, strict=True))
    found = creation_of(np.zeros_like(own), own, node, known)
    assert found.tolist() == [brute(one, events) for one in asked]
