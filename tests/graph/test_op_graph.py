"""The graph of calls beside plain loops over the texts that PyTorch's emit_nvtx writes."""

from __future__ import annotations

import ast
import json
import re

import pytest
from command import bridge as command
from hypothesis import given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, thread

import bridge
from bridge.analyze.draw.op_graph import op_graph
from bridge.render.op_graph import as_dot, as_execution_trace, as_json

PID = 7
FORWARD = [  # start, end, text
    (10, 100, "aten::linear, seq = 5, op_id = 1, sizes = [[2, 3], [4, 3]]"),
    (20, 40, "aten::t, seq = 5, op_id = 2, sizes = [[4, 3]], input_op_ids = [(0,-1)]"),
    (50, 90, "aten::mm, seq = 6, op_id = 3, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (2,0)]"),
    (110, 130, "aten::cat, op_id = 4, sizes = [[2, 4], [2, 4], []], input_op_ids = [(1,0), (3,1), (99,0)]"),
    (200, 300, "MmBackward0, seq = 6, op_id = 9"),
    (210, 290, "aten::mm, op_id = 10, input_op_ids = [(4,0), (2,0)]"),
]  # fmt: skip


def made(path, texts=FORWARD):
    report = Made()
    for start, end, text in texts:
        report.annotation(PUSH_POP, start, end, text=text, thread=thread(PID))
    report.kernel("k", 60, PID, 400, 407)
    return report.written(path)


def expected(texts):
    """Give the edges by plain loops: producer, consumer, output, position of the input."""
    ids = {}
    for number, (_, _, text) in enumerate(texts, 1):
        found = re.search(r"op_id = (\d+)", text)
        if found:
            ids[int(found[1])] = number
    edges = []
    for number, (_, _, text) in enumerate(texts, 1):
        found = re.search(r"input_op_ids = (\[.*\])", text)
        for place, (producer, output) in enumerate(ast.literal_eval(found[1]) if found else []):
            if producer > 0 and producer in ids:
                edges.append((ids[producer], number, output, place))
    return edges


def edges_of(graph):
    rows = graph.edges[graph.edges["kind"] == "data"]
    return [*zip(*(rows[c].tolist() for c in ("source", "target", "output", "input")), strict=True)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return op_graph(bridge.load(made(tmp_path_factory.mktemp("g") / "r.sqlite")).attributed)


def test_nodes(graph):
    nodes = graph.nodes
    assert nodes["name"].tolist() == [text.split(",")[0] for _, _, text in FORWARD]
    assert nodes["parent"].tolist() == [0, 1, 1, 0, 0, 5]
    assert nodes["op_id"].tolist() == [1, 2, 3, 4, 9, 10]
    assert nodes["seq"].tolist() == [5, 5, 6, -1, 6, -1]
    assert nodes["gpu_ns"].tolist() == [0, 0, 7, 0, 0, 0]
    assert nodes["start_ns"].tolist() == [0, 10, 40, 100, 190, 200]
    assert nodes["backward"].tolist() == [False] * 4 + [True] * 2


def test_edges(graph):
    assert edges_of(graph) == expected(FORWARD) == [
        (2, 3, 0, 1), (1, 4, 0, 0), (3, 4, 1, 1), (4, 6, 0, 0), (2, 6, 0, 1),
    ]  # fmt: skip
    other = graph.edges[graph.edges["kind"] == "backward"]
    assert other[["source", "target"]].to_pandas().to_numpy().tolist() == [[3, 5]]
    tensors = graph.edges[graph.edges["kind"] == "data"]["tensor"].tolist()
    assert tensors[0] == tensors[4]  # the same output, read twice
    assert len(set(tensors)) == 4


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 7), st.integers(-1, 2)), max_size=3)),
        min_size=1, max_size=8, unique_by=lambda one: one[0],
    )
)  # fmt: skip
def test_edges_of_any_ids(tmp_path_factory, calls):
    texts = [
        (10 * n + 1, 10 * n + 5, f"f, op_id = {own}, sizes = [], input_op_ids = {inputs}".replace("), (", "), ("))
        for n, (own, inputs) in enumerate(calls)
    ]  # fmt: skip
    path = made(tmp_path_factory.mktemp("any") / "r.sqlite", texts)
    assert edges_of(op_graph(bridge.load(path).attributed)) == expected(texts)


def test_json(graph):
    written = json.loads("".join(as_json(graph, ["r.sqlite"])))
    assert (written["format"], written["source"]) == ("bridge.graph/1", ["r.sqlite"])
    assert written["nodes"][2]["shapes"] == [[2, 3], [3, 4]]
    assert "seq" not in written["nodes"][3]
    assert written["edges"][0] == {"kind": "data", "source": 2, "target": 3, "output": 0, "input": 1, "tensor": 2}  # fmt: skip


def test_dot(graph):
    lines = "".join(as_dot(graph, [])).splitlines()
    assert lines[0] == "digraph ops {"
    assert '  3 [label="aten::mm\\n[[2, 3], [3, 4]]"];' in lines
    assert "  1 -> 3 [style=dashed, arrowhead=none];" in lines
    assert "  2 -> 3;" in lines
    assert "  3 -> 5 [style=dotted];" in lines


def test_an_execution_trace(graph):
    written = json.loads("".join(as_execution_trace(graph, [])))
    assert written["pid"] == PID
    nodes = {node["id"]: node for node in written["nodes"]}
    process, own_thread = nodes[1], nodes[2]
    assert process["name"].endswith("|process]")
    assert own_thread["name"].endswith("|thread]")
    linear, mm, backward = nodes[3], nodes[5], nodes[7]
    assert (linear["ctrl_deps"], mm["ctrl_deps"]) == (2, 3)
    assert mm["inputs"]["values"][1][0] == nodes[4]["outputs"]["values"][0][0]  # one tensor
    assert mm["inputs"]["values"][0] == ""  # unknown
    attributes = {entry["name"]: entry["value"] for entry in backward["attrs"]}
    assert (attributes["fw_parent"], attributes["seq_id"]) == (5, 6)


def test_the_command(tmp_path):
    path = made(tmp_path / "r.sqlite")
    for name in ("o.json", "o.dot", "o.et"):
        done = command("graph", path, "-o", tmp_path / name)
        assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "o.json").read_text())["format"] == "bridge.graph/1"
    assert (tmp_path / "o.dot").read_text().startswith("digraph")
    assert "chakra" in (tmp_path / "o.et").read_text()


def test_without_data_flow_there_is_a_hint(tmp_path):
    path = made(tmp_path / "r.sqlite", [(1, 5, "f")])
    done = command("graph", path)
    assert "emit_nvtx(record_shapes=True)" in done.stderr
    assert json.loads(done.stdout)["edges"] == []
