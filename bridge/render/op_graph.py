"""The graph of calls as JSON, as Graphviz' DOT, and in the format of PyTorch's execution traces."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from bridge.analyze.draw.op_graph import DATA, OpGraph, parsed

FORMAT = "bridge.graph/1"


def as_json(graph: OpGraph, source: Sequence[str]) -> Iterator[str]:
    """Yield the graph as an object with the lists ``nodes`` and ``edges``; unknown facts are left out."""
    head = {"format": FORMAT, "source": list(source)}
    yield f"{json.dumps(head)[:-1]}, "
    yield from _list("nodes", (_known(node) for node in graph.nodes.records()))
    yield ", "
    yield from _list("edges", (_known(edge) for edge in graph.edges.records()))
    yield "}\n"


def _known(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the fields of a row without unknown ones (-1, ''), with lists as lists."""
    known = {str(key): value for key, value in row.items() if value not in ("", -1)}
    lists = {key: parsed(value) for key, value in known.items() if str(value).startswith("[")}
    return {**known, **lists}


def _list(name: str, rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield f'"{name}": ['
    for number, row in enumerate(rows):
        yield f"{',' if number else ''}\n{json.dumps(row, ensure_ascii=False)}"
    yield "]"


# -- DOT


def as_dot(graph: OpGraph, _source: Sequence[str]) -> Iterator[str]:
    """Yield a graph for Graphviz: data flow solid, nesting dashed, forward to backward dotted."""
    yield "digraph ops {\n  node [shape=box, fontname=sans];\n"
    for node in graph.nodes.records():
        lines = [node["name"], *([node["shapes"]] if node["shapes"] else [])]
        label = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
        yield f'  {node["id"]} [label="{label}"];\n'
        if node["parent"]:
            yield f"  {node['parent']} -> {node['id']} [style=dashed, arrowhead=none];\n"
    for edge in graph.edges.records():
        style = "" if edge["kind"] == DATA else " [style=dotted]"
        yield f"  {edge['source']} -> {edge['target']}{style};\n"
    yield "}\n"


# -- Execution traces, by the schema of PyTorch's ExecutionTraceObserver


SCHEMA = "1.1.1-chakra.0.0.4"
PROCESS, THREAD = (f"[pytorch|profiler|execution_trace|{kind}]" for kind in ("process", "thread"))
FUNCTION, BACKWARD_FUNCTION, USER = 0, 1, 7  # PyTorch's numbers of scopes
THREAD_MASK = 0xFFFFFF
NS_PER_US = 1000


def as_execution_trace(graph: OpGraph, _source: Sequence[str]) -> Iterator[str]:
    """Yield an execution trace: a node per process, thread and call.

    An input that is the output of a call has that tensor's id as its value, others the value that
    the report has, or "". Nodes are in the order in which they began.
    """
    nodes = graph.nodes
    threads = {
        thread: number for number, thread in enumerate(dict.fromkeys(nodes["thread"].tolist()))
    }
    offset = len(threads) + 1  # ids: 1 of the process, then threads, then calls
    head = {"schema": SCHEMA, "pid": int(nodes["process"][0] >> 24) if len(nodes) else 0}
    yield f"{json.dumps(head)[:-1]}, "
    places = {thread: number + 2 for thread, number in threads.items()}
    yield from _list("nodes", _trace_nodes(graph, places, offset))
    yield "}\n"


def _trace_nodes(graph: OpGraph, threads: dict[int, int], offset: int) -> Iterator[dict[str, Any]]:
    yield _trace_node(1, PROCESS, parent=1, scope=USER, tid=0)
    for thread, number in threads.items():
        yield _trace_node(number, THREAD, parent=1, scope=USER, tid=thread & THREAD_MASK)
    inputs, outputs = _tensors(graph)
    forward = {e["target"]: e["source"] for e in graph.edges.records() if e["kind"] != DATA}
    for row in graph.nodes.records():
        parent = row["parent"] + offset if row["parent"] else threads[row["thread"]]
        scope = BACKWARD_FUNCTION if row["backward"] else FUNCTION
        tid = row["thread"] & THREAD_MASK
        node = _trace_node(row["id"] + offset, row["name"], parent=parent, scope=scope, tid=tid)
        of_forward = forward.get(row["id"], 0)
        node["inputs"] = _sides(row, "", inputs[row["id"]])
        node["outputs"] = _sides(row, "output_", outputs[row["id"]])
        node["attrs"] = _attributes(
            rf_id=row["id"],
            fw_parent=of_forward + offset if of_forward else 0,
            seq_id=row["seq"],
            scope=scope,
            tid=tid,
            op_schema=f"{row['name']}.{row['overload']}" if row["overload"] else row["name"],
        )
        yield node


def _tensors(graph: OpGraph) -> tuple[defaultdict[int, dict[int, int]], ...]:
    """Return the tensors of the inputs and outputs of each node, by position."""
    inputs: defaultdict[int, dict[int, int]] = defaultdict(dict)
    outputs: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for edge in graph.edges.records():
        if edge["kind"] == DATA:
            inputs[edge["target"]][edge["input"]] = edge["tensor"]
            outputs[edge["source"]][max(edge["output"], 0)] = edge["tensor"]
    return inputs, outputs


def _sides(row: dict[Any, Any], prefix: str, tensors: dict[int, int]) -> dict[str, Any]:
    """Return values, shapes, types and strides of the inputs or outputs: as many entries of each."""
    shapes = parsed(row[f"{prefix}shapes"])
    names = () if prefix else ("values", "types", "strides")
    values, types, strides = [parsed(row[name]) for name in names] or ([], [], [])
    known = max(map(len, (shapes, values, types, strides)))
    count = max(known, *(position + 1 for position in tensors), 0)
    values = _filled(values, "", count)
    for position, tensor in tensors.items():
        values[position] = [tensor, tensor, 0, 0, 0, ""]
    return {
        "values": values,
        "shapes": _filled(shapes, [], count),
        "types": _filled(types, "", count),
        "strides": _filled(strides, [], count),
    }


def _filled(entries: list[Any], empty: object, count: int) -> list[Any]:
    return [*entries, *[empty] * (count - len(entries))]


def _trace_node(number: int, name: str, parent: int, scope: int, tid: int) -> dict[str, Any]:
    empty: dict[str, Any] = {"values": [], "shapes": [], "types": [], "strides": []}
    attrs = _attributes(rf_id=0, fw_parent=0, seq_id=-1, scope=scope, tid=tid, op_schema="")
    sides = {"inputs": empty, "outputs": empty}
    return {"id": number, "name": name, "ctrl_deps": parent, **sides, "attrs": attrs}


TYPES = {"seq_id": "int64", "op_schema": "string"}


def _attributes(**values: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": TYPES.get(name, "uint64"), "value": value}
        for name, value in values.items()
    ]


WRITERS = {"json": as_json, "dot": as_dot, "et": as_execution_trace}
