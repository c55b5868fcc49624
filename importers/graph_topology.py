"""What PyTorch says of the nodes of a CUDA graph as a whole (`CUDAGraph.get_graph_data`, PyTorch 2.15).

A profiler records a callback on the host by the id of its node alone: this is where its function has a name.
Kernels have theirs in every report, and the edges between nodes are not used.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from bridge.importers.arrays import MISSING, Flags, Ints
from bridge.importers.capture import Capture
from bridge.importers.frames import GRAPH_HOST_NODE, GRAPH_NODE, Names
from bridge.importers.kineto.events import clean_names
from bridge.importers.kineto.graph_nodes import UNKNOWN_FUNCTION
from bridge.importers.records import record
from bridge.importers.texts import Texts

EXEC_GRAPH, NODES, NODE, FUNCTION = "exec_graph_id", "nodes", "tools_id", "host_fn_name"


@record
class Topology:
    """The nodes of graphs in ascending order, and the function of those that are callbacks, none for others."""

    source: str
    node: Ints
    function: Names


def topology_of(source: str, parsed: object) -> Topology | None:
    """Return what a file says of one graph or of a list of graphs, None for another file.

    Raises KeyError, TypeError, ValueError or OverflowError for nodes that are none.
    """
    graphs: list[Any] = parsed if isinstance(parsed, list) else [parsed]
    is_graph = [isinstance(graph, dict) and {EXEC_GRAPH, NODES} <= graph.keys() for graph in graphs]
    if not is_graph or not all(is_graph):
        return None
    functions = {_id(node): _function(node) for graph in graphs for node in graph[NODES]}
    node = np.array(sorted(functions), np.int64)
    return Topology(source, node, clean_names([functions[one] for one in node.tolist()]))


def _id(node: dict[str, Any]) -> int:
    number = node[NODE]
    if type(number) is not int or number <= 0:
        raise ValueError(number)
    return number


def _function(node: dict[str, Any]) -> str:
    name = node.get(FUNCTION)
    return name if isinstance(name, str) else ""


def callbacks(capture: Capture) -> tuple[Ints, Ints]:
    """Return the ranges that are callbacks in CUDA graphs, and the node of each, -1 where it is not known."""
    ranges = capture.ranges
    rows = np.flatnonzero(ranges.category == GRAPH_HOST_NODE)
    return rows, ranges.json[rows].per_text(_node_in).astype(np.int64)


def _node_in(details: str) -> int:
    node = json.loads(details).get(GRAPH_NODE) if details else None
    return node if type(node) is int else MISSING


def with_functions(capture: Capture, topology: Topology, of_home: Flags) -> tuple[Capture, int]:
    """Return the capture with names of the nameless callbacks among some ranges, and how many got one."""
    ranges = capture.ranges
    rows, node = callbacks(capture)
    nameless = of_home[rows] & (ranges.name[rows] == UNKNOWN_FUNCTION)
    rows, node = rows[nameless], node[nameless]
    place = np.minimum(np.searchsorted(topology.node, node), len(topology.node) - 1)
    place = np.where(topology.node[place] == node, place, MISSING)
    function = topology.function.at(place)
    named = function.matching(bool)
    rows, function = rows[named], function[named]
    if not len(rows):
        return capture, 0
    names = Names.concat([ranges.name, function])
    codes = names.codes
    codes[rows] = codes[len(ranges) :]
    text = ranges.text.copy()
    text[rows] = len(capture.texts) + function.codes
    changed = ranges.replace(name=Names(codes[: len(ranges)], names.texts), text=text)
    texts = Texts.concat([capture.texts, Texts.of(function.texts)])
    return replace(capture, ranges=changed, texts=texts), len(rows)
