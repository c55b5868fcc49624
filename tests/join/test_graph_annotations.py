"""What PyTorch says of nodes of CUDA graphs, joined with a report of replays whose capture is not in it."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
from command import bridge, done
from made_reports import Made, thread

from bridge import importers
from bridge.annotate.recording.graphs import MODULE, graph_annotations
from bridge.annotate.recording.sink import File
from bridge.annotate.recording.writer import Writer
from bridge.importers.errors import ReportError
from bridge.report import join

GRAPH = 7 << 32  # of the executable graph, in the upper half of a node's id
PID = 100
QKV, ATTENTION, BACKWARD, SILENT = (GRAPH | n for n in range(4))
SAID = {
    QKV: [{"name": "qkv_proj", "module": "layers.0.attn", "stream": 62}],
    ATTENTION: [{"name": "attention", "dtype": "bf16"}],
    BACKWARD: [{"name": "attention", "module": "layers.0.attn", "autograd_phase": "backward"}],
    9 << 32: ["of a graph that did not run"],
}
STACKS = {
    str(QKV): "/home/me/model.py:12:forward\n/home/me/train.py:30:step",
    str(ATTENTION): "/home/me/model.py:15:forward\n/home/me/train.py:30:step",
}
REPLAYS = 3
LENGTH = {QKV: 10, ATTENTION: 20, BACKWARD: 40, SILENT: 80}


def replays(path: Path, pids: tuple[int, ...] = (PID,), *, captured: bool = False) -> Path:
    """Write replays of one graph of four kernels, launched within a range."""
    made = Made()
    for pid in pids:
        if captured:  # the report holds the capture of one node, in a range of its own
            made.annotation(59, 100, 200, text="capture", thread=thread(pid))
            made.tables["graph_nodes"].append({"time": 150, "thread": thread(pid), "node": QKV})
        for replay in range(REPLAYS):
            t = 1_000 * (replay + 1)
            made.annotation(59, t, t + 500, text="replay", thread=thread(pid))
            made.launched("kernels", t + 10, pid, t + 100, t + 110, **of_node(made, QKV))
            for node, at in ((ATTENTION, 120), (BACKWARD, 150), (SILENT, 200)):
                row = {**made.tables["kernels"][-1], **of_node(made, node)}
                made.tables["kernels"].append(
                    {**row, "start": t + at, "end": t + at + LENGTH[node]}
                )
    return made.written(path)


def of_node(made: Made, node: int) -> dict[str, int]:
    name = made.string(f"kernel_{node & 0xFF}")
    return {"graph_node": node, "name": name, "full_name": name}


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    path = tmp_path / "annotations.pkl"
    path.write_bytes(pickle.dumps(SAID))
    return path


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    path = tmp_path / "stacks.json.gz"
    path.write_bytes(gzip.compress(json.dumps(STACKS).encode()))
    return path


def topology(
    graph: int, callbacks: dict[int, str | None], *, kernels: int = 4
) -> dict[str, object]:
    """Return what PyTorch's get_graph_data() says of a graph of kernels and callbacks, one after another."""

    def node(index: int) -> dict[str, object]:
        is_host = index in callbacks
        return {
            "index": index, "node_type": "host" if is_host else "kernel", "tools_id": graph << 32 | index,
            "graph_id": graph, "node_id": index, "kernel_name": None if is_host else "k",
            "grid_dim": None if is_host else (8, 2, 1), "block_dim": None if is_host else (128, 1, 1),
            "shared_mem_bytes": None if is_host else 0, "event_ptr": 0, "host_fn_addr": 4096 if is_host else 0,
            "host_fn_name": callbacks.get(index), "dependencies": [index - 1] if index else [], "dependents": [index + 1],
        }  # fmt: skip

    count = kernels + len(callbacks)
    edges = [{"from": n, "to": n + 1, "from_port": 0, "to_port": 0, "type": 0} for n in range(count - 1)]  # fmt: skip
    return {"exec_graph_id": graph, "nodes": [node(n) for n in range(count)], "edges": edges}


@pytest.fixture
def nameless(tmp_path: Path) -> Path:
    """Write a trace of Cuspy: in each of three replays of graph 7 two callbacks, whose functions are not told."""
    at = {"pid": 0, "tid": 7, "ts": 10, "dur": 3}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", **at, "args": {"device": 0, "stream": 7, "graph id": 7, "graph node id": 0}}  # fmt: skip
    events = [kernel]
    for replay in range(REPLAYS):
        for node, name in ((4, "HostNode"), (5, "HostNode"), (6, "HostNode: told")):
            args = {"device": 0, "stream": 7, "graph id": 7, "graph node id": node}
            if name != "HostNode":
                args["host fn"] = "told"
            events.append({"ph": "X", "cat": "graph_host_node", "name": name, **at, "ts": 20 + 30 * replay + 4 * node, "args": args})  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.mark.parametrize("form", ["pickle", "json", "list"])
def test_callbacks_get_the_names_that_pytorch_knows(nameless: Path, tmp_path: Path, form: str) -> None:  # fmt: skip
    said = topology(7, {4: "std::function<void ()>::call, seq = 5", 5: None, 6: "other"})
    several = [topology(9, {4: "of another graph"}), said]
    path = tmp_path / "graph.json"
    path.write_bytes(pickle.dumps(said) if form == "pickle" else json.dumps(several if form == "list" else said).encode())  # fmt: skip
    plain = importers.load(nameless)
    named = importers.load(nameless, graph_annotations=[path])
    expected = {4: "std::function<void ()>::call, seq = 5", 5: "HostNode", 6: "told"}
    nodes = [json.loads(text)["graph_node"] & 0xFF for text in named.ranges.json]
    assert named.texts.decode(named.ranges.text.tolist()) == [expected[node] for node in nodes]
    assert named.ranges.name.tolist() == [expected[node] for node in nodes]
    assert len(nodes) == 3 * REPLAYS
    for column in ("start", "end", "thread"):
        assert (named.ranges[column] == plain.ranges[column]).all()
    assert len(named.graph_nodes) == 0


def test_the_command_says_how_many_callbacks_it_named(nameless: Path, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(topology(7, {4: "mine", 5: None})))
    result = bridge("report", nameless, "--graph-annotations", path, "--by", "op")
    assert "graph.json: names 3 callbacks of CUDA graphs that had no name" in result.stderr
    assert "mine" in result.stdout


@pytest.mark.parametrize(
    "content",
    [
        {"exec_graph_id": 7, "nodes": [{"tools_id": "x"}]}, {"exec_graph_id": 7, "nodes": [{"node_id": 3}]},
        {"exec_graph_id": 7, "nodes": [5]}, {"exec_graph_id": 7, "nodes": [{"tools_id": 2**70}]},
        {"exec_graph_id": 7, "nodes": 5}, [], [{}], [5],
    ],
)  # fmt: skip
def test_what_is_no_graph(nameless: Path, tmp_path: Path, content: object) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ReportError, match=r"graph\.json: no annotations of CUDA graphs"):
        importers.load(nameless, graph_annotations=[path])


def test_a_graph_that_did_not_run(nameless: Path, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    for content in (topology(8, {4: "mine"}), {"exec_graph_id": 7, "nodes": []}):
        path.write_text(json.dumps(content))
        with pytest.raises(ReportError, match="labels no node of a CUDA graph"):
            importers.load(nameless, graph_annotations=[path])


def rows(*words: str | Path) -> dict[tuple[str, ...], int]:
    """Give the GPU time of each row of a table that has any, by its names."""
    table = json.loads(done("report", *words, "--format", "json"))["rows"]
    time = "gpu_self_ns" if "gpu_self_ns" in table[0] else "total_ns"
    return {
        tuple(v for v in row.values() if isinstance(v, str)): row[time]
        for row in table
        if row[time]
    }


def expected(said: dict[int, tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    """Add up the time of replays by what is said of each node, one after another."""
    result: dict[tuple[str, ...], int] = {}
    for node, length in LENGTH.items():
        label = said[node]
        result[label] = result.get(label, 0) + REPLAYS * length
    return result


def test_kernels_of_replays_have_the_names_of_their_nodes(tmp_path, annotations):
    path = replays(tmp_path / "r.sqlite")
    assert rows(path, "--by", "op,module", "--graph-annotations", annotations) == expected(
        {
            QKV: ("qkv_proj", "layers.0.attn"),
            ATTENTION: ("attention", "(no module)"),
            BACKWARD: ("attention (backward)", "layers.0.attn"),
            SILENT: ("replay", "(no module)"),
        }
    )
    by = rows(path, "--by", "op,direction", "--graph-annotations", annotations)
    assert by["attention (backward)", "backward"] == REPLAYS * LENGTH[BACKWARD]
    assert rows(path, "--by", "op,kind") == {("replay", "other"): REPLAYS * sum(LENGTH.values())}


def test_kernels_of_replays_have_their_python_lines(tmp_path, annotations, stacks):
    path = replays(tmp_path / "r.sqlite")
    both = ["--graph-annotations", annotations, "--graph-annotations", stacks]
    lines = expected(
        {
            QKV: ("qkv_proj", "forward", "/home/me/model.py:12"),
            ATTENTION: ("attention", "forward", "/home/me/model.py:15"),
            BACKWARD: ("attention (backward)", "", "(no call stack)"),
            SILENT: ("replay", "", "(no call stack)"),
        }
    )
    assert rows(path, "--by", "op,source", *both) == lines
    assert rows(path, "--by", "op,source", *both[2:], *both[:2]) == lines
    text = done("report", path, "--by", "source", *both)
    assert "/home/me/model.py:12" in text
    alone = rows(path, "--by", "op,kind", "--graph-annotations", stacks)
    assert alone["/home/me/model.py(12): forward", "other"] == REPLAYS * LENGTH[QKV]
    assert "model.py:12" in done("why", path, "0", *both)


def test_a_name_goes_before_the_range_of_the_capture_and_a_stack_behind_it(
    tmp_path, annotations, stacks
):
    path = replays(tmp_path / "r.sqlite", captured=True)
    assert ("qkv_proj", "other") in rows(
        path, "--by", "op,kind", "--graph-annotations", annotations
    )
    by = rows(path, "--by", "op,kind", "--graph-annotations", stacks)
    assert by["capture", "other"] == REPLAYS * LENGTH[QKV]
    assert ("/home/me/model.py(15): forward", "other") in by


def test_the_time_of_the_gpu_stays_as_it_is(tmp_path, annotations, stacks):
    path = replays(tmp_path / "r.sqlite")
    plain, known = (
        json.loads(done("summary", path, *words, "--format", "json"))
        for words in ((), ("--graph-annotations", annotations, "--graph-annotations", stacks))
    )
    assert known["gpus"] == plain["gpus"]
    assert known["run"]["length_ns"] == plain["run"]["length_ns"]


def test_a_run_of_the_store_keeps_them(tmp_path, annotations):
    path, db = replays(tmp_path / "r.sqlite"), tmp_path / "runs.db"
    for words in ((), ("--graph-annotations", annotations)):  # two runs of one report
        assert bridge("import", path, "--db", db, "-q", *words).exit_code == 0
    assert ("qkv_proj", "other") in rows("--db", db, "--by", "op,kind")
    assert ("qkv_proj", "other") not in rows("--db", db, "--run", "1", "--by", "op,kind")


def test_a_file_is_of_the_process_with_its_nodes(tmp_path, annotations):
    path = replays(tmp_path / "r.sqlite", (PID, PID + 1))
    result = bridge("report", path, "--graph-annotations", annotations)
    assert result.exit_code == 1
    assert "annotations.pkl: fits 2 processes of r.sqlite alike" in result.stderr
    one, other = replays(tmp_path / "one.sqlite"), replays(tmp_path / "other.sqlite", (PID + 1,))
    with pytest.raises(ReportError, match=r"fits 2 processes of one\.sqlite, other\.sqlite alike"):
        importers.load(one, other, graph_annotations=[annotations])


def test_files_of_ranks_go_to_the_reports_of_their_ranks(tmp_path, annotations):
    """Ranks do the same: their files say the same of the same nodes, and only names tell them apart."""
    reports = [replays(tmp_path / f"run-rank{n}.sqlite", (PID + n,)) for n in range(2)]
    files = [tmp_path / f"rank_{n}.pkl" for n in (1, 0)]
    for file in files:
        file.write_bytes(annotations.read_bytes())
    one = len(importers.load(reports[0], graph_annotations=files[1:]).ranges)
    both = importers.load(*reports, graph_annotations=files).ranges
    plain = importers.load(reports[0]).ranges
    assert len(both) == 2 * one > 2 * len(plain)
    assert np.bincount(both.report).tolist() == [one, one]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no pickle", "cut off or damaged"),
        (pickle.dumps([1]), "no annotations of CUDA graphs"),
        (pickle.dumps({}), "no annotations of CUDA graphs"),
        (pickle.dumps({"a node": [{}]}), "no annotations of CUDA graphs"),
        (pickle.dumps({-1: [{}]}), "no annotations of CUDA graphs"),
        (pickle.dumps({1 << 63: [{}]}), "no annotations of CUDA graphs"),
        (json.dumps({"5": "a text that is no stack"}).encode(), "no annotations of CUDA graphs"),
        (pickle.dumps({5: [{"name": "x"}]}), "labels no node of a CUDA graph in r.sqlite"),
        (pickle.dumps({5: [subprocess.CompletedProcess([], 0)]}), "none of its code was run"),
    ],
)
def test_other_files_are_refused(tmp_path, data, message):
    path, file = replays(tmp_path / "r.sqlite"), tmp_path / "a.pkl"
    file.write_bytes(data)
    result = bridge("report", path, "--graph-annotations", file)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1


def test_odd_annotations_have_some_name(tmp_path):
    path, file = replays(tmp_path / "r.sqlite"), tmp_path / "a.pkl"
    file.write_bytes(
        pickle.dumps(
            {
                QKV: [{"name": "inner"}, {"name": "outer", "module": "m"}],
                ATTENTION: "a/b.py:3:f",
                BACKWARD: [{"kind": "all_gather", "bytes": 64}],
                SILENT: [{}],
            }
        )
    )
    found = join(importers.load(path, graph_annotations=[file]))
    table = found.by("op")
    ops = dict(zip(table["op"], table["gpu_self_ns"], strict=True))
    assert ops["inner"] == REPLAYS * LENGTH[QKV]
    assert ops["a/b.py(3): f"] == REPLAYS * LENGTH[ATTENTION]
    assert ops["kind=all_gather bytes=64"] == REPLAYS * LENGTH[BACKWARD]
    assert ops["replay"] == REPLAYS * LENGTH[SILENT]


def test_a_run_is_not_read_with_annotations(tmp_path, annotations):
    path, db = replays(tmp_path / "r.sqlite"), tmp_path / "runs.db"
    assert bridge("import", path, "--db", db, "-q").exit_code == 0
    result = bridge("report", "--db", db, "--graph-annotations", annotations)
    assert result.exit_code == 2
    assert "--graph-annotations goes with report files" in result.stderr


# -- Recorded by the program itself


@pytest.fixture
def said_by_torch(monkeypatch):
    """PyTorch's registry as a program has it that captured graphs, with a value that JSON has no word for."""
    said = {**SAID, QKV: [{**SAID[QKV][0], "dtype": complex}]}
    registry = SimpleNamespace(
        get_kernel_annotations=lambda: MappingProxyType(said),
        get_kernel_py_stacks=lambda: {int(node): stack for node, stack in STACKS.items()},
    )
    monkeypatch.setitem(sys.modules, MODULE, registry)
    return registry


def recorded(folder: Path) -> Path:
    path = folder / "bridge-here-1.jsonl"
    writer = Writer(File(path))
    writer.note_end()
    assert writer.has_news
    writer.close()
    return path


def test_a_program_under_a_tool_records_them(tmp_path, said_by_torch):
    path, recording = replays(tmp_path / "r.sqlite", (os.getpid(),)), recorded(tmp_path)
    labels = {
        QKV: ("qkv_proj", "forward", "/home/me/model.py:12"),
        ATTENTION: ("attention", "forward", "/home/me/model.py:15"),
        BACKWARD: ("attention (backward)", "", "(no call stack)"),
        SILENT: ("replay", "", "(no call stack)"),
    }
    assert rows(path, "--by", "op,source", "--sidecar", recording) == expected(labels)
    assert "graph_annotations" not in importers.load(path, sidecar=[recording]).facts[0].metadata


@pytest.mark.parametrize("registry", [None, object(), SimpleNamespace(get_kernel_annotations=1)])
def test_a_prototype_that_changed_tells_nothing(monkeypatch, registry):
    monkeypatch.setitem(sys.modules, MODULE, registry)
    assert graph_annotations() == {}


def test_a_damaged_recording_labels_nothing(tmp_path, said_by_torch):
    path, recording = replays(tmp_path / "r.sqlite", (os.getpid(),)), recorded(tmp_path)
    recording.write_text(recording.read_text().replace(str(QKV), "no number"))
    assert ("replay", "other") in rows(path, "--by", "op,kind", "--sidecar", recording)


@pytest.mark.slow
def test_names_of_pytorchs_functions_are_those_of_the_installed_version():
    torch_annotations = pytest.importorskip(MODULE, reason="PyTorch is not installed")
    assert callable(torch_annotations.get_kernel_annotations)
    if not hasattr(torch_annotations, "_kernel_annotations"):
        pytest.skip("PyTorch 2.15 and later write to their registry only on a GPU")
    torch_annotations._kernel_annotations[QKV] = [{"name": "qkv_proj"}]
    try:
        assert graph_annotations() == {"annotation": {str(QKV): [{"name": "qkv_proj"}]}}
    finally:
        del torch_annotations._kernel_annotations[QKV]


# -- Corners


def test_names_like_steps_are_no_steps(tmp_path):
    path, file = replays(tmp_path / "r.sqlite"), tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps({node: [{"name": f"step {n}"}] for n, node in enumerate(SAID)}))
    plain, known = (importers.load(path, graph_annotations=files) for files in ((), (file,)))
    steps = [join(one).attributed.iterations for one in (plain, known)]
    assert steps[0].start.tolist() == steps[1].start.tolist()


def test_a_file_that_is_given_twice_counts_once(tmp_path, annotations):
    path = replays(tmp_path / "r.sqlite")
    once, twice = (importers.load(path, graph_annotations=[annotations] * n) for n in (1, 2))
    assert len(once.ranges) == len(twice.ranges)


def test_nothing_is_no_name(tmp_path):
    path, file = replays(tmp_path / "r.sqlite"), tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps({QKV: [None], ATTENTION: None}))
    assert set(rows(path, "--by", "op,kind", "--graph-annotations", file)) == {("replay", "other")}


def test_the_host_alone_has_no_such_work(tmp_path, annotations):
    path = replays(tmp_path / "r.sqlite")
    result = bridge("report", path, "--only", "host", "--graph-annotations", annotations)
    assert result.exit_code == 2
    assert "leave --only host out" in result.stderr


def test_a_child_without_events_writes_no_recording(tmp_path, said_by_torch):
    writer = Writer(File(tmp_path / "bridge-here-2.jsonl"))
    writer.in_child()
    writer.note_end()
    writer.close()
    assert not [path for path in tmp_path.rglob("*") if "qkv_proj" in path.read_text()]
