"""The graph of the calls of ops: which call is in which, whose output is whose input, forward and backward.

The data flow is what `torch.autograd.profiler.emit_nvtx(record_shapes=True)` writes into its ranges:
each call has an ``op_id``, and ``input_op_ids`` names the call and the output that each input is from.
"""

from __future__ import annotations

import json
import re

import numpy as np

from bridge.analyze.core.call_details import (
    input_dtypes,
    input_shapes,
    input_strides,
    input_types,
    input_values,
    output_shapes,
    overloads,
)
from bridge.analyze.core.groups import sums, texts
from bridge.analyze.core.table import Table
from bridge.importers.arrays import lookup
from bridge.importers.frames import key_codes
from bridge.importers.range_texts import INPUT_OP_IDS, OP_ID, SEQ, numbers, values
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture

DATA, BACKWARD = KINDS = ("data", "backward")
PAIR = re.compile(r"\((-?\d+), ?(-?\d+)\)")


@record
class OpGraph:
    """Calls of ops as nodes, and edges between them.

    Attributes:
        nodes: a row per call, by begin: id (from 1), parent (the id of the call around it, 0 for
            none), name, overload, op_id and seq (-1 if unknown), process, thread, start_ns (from
            the begin of the report), duration_ns, gpu_ns (of the work that it launched itself),
            backward, shapes, dtypes, types, values, strides, output_shapes (texts, '' if unknown;
            all but dtypes are JSON lists with an entry per input or output).
        edges: a row per edge: kind (data, backward), source and target (ids), output and input
            (numbers of the tensor, -1 for a backward edge), tensor (a number per distinct source
            and output, from 1; 0 for a backward edge).

    """

    nodes: Table
    edges: Table

    @property
    def has_data(self) -> bool:
        """Whether the report tells whose output is whose input."""
        return bool((self.edges["kind"] == DATA).any())


def op_graph(attributed: AttributedCapture) -> OpGraph:
    """Return the graph of the calls of ops; of a call in slices the first slice is the node."""
    rows = _calls(attributed)
    edges = Table.concat([_data(attributed, rows), _backward(attributed, rows)])
    return OpGraph(_nodes(attributed, rows), edges)


def _calls(attributed: AttributedCapture) -> Ints:
    """Return the rows of the ranges that are nodes, in the order in which they began."""
    listed = np.flatnonzero(attributed.listed_ranges)
    ranges = attributed.capture.ranges
    start, end = ranges.start[listed], ranges.end[listed]
    ordered = listed[np.lexsort((-end, start))]
    _, first = np.unique(attributed.call[ordered], return_index=True)
    return ordered[np.sort(first)]


def _ids(attributed: AttributedCapture, rows: Ints) -> Ints:
    """Return the id of the node of each range, 0 for none; the slices of a call have one id."""
    call = attributed.call
    of_call = np.zeros(int(call.max(initial=NONE)) + 2, np.int64)
    of_call[call[rows]] = np.arange(1, len(rows) + 1)
    return np.where(call == NONE, 0, of_call[call])


def _nodes(attributed: AttributedCapture, rows: Ints) -> Table:
    ranges, nesting = attributed.capture.ranges, attributed.attribution.nesting
    ids = np.append(_ids(attributed, rows), 0)
    node = nesting.first_nodes(len(ranges))[rows]
    around = lookup(lookup(nesting.range, nesting.parent), node)
    text = ranges.text[rows]
    columns = {c: ranges[c][rows] for c in ("start", "end", "process", "thread")}
    described = {
        "shapes": input_shapes,
        "dtypes": input_dtypes,
        "types": input_types,
        "values": input_values,
        "strides": input_strides,
        "output_shapes": output_shapes,
    }
    return Table(
        {
            "id": np.arange(1, len(rows) + 1),
            "parent": ids[around],
            "name": texts(attributed.ops)[attributed.op[rows]],
            "overload": _texts(rows, *overloads(attributed)),
            "op_id": numbers(attributed.capture.texts, OP_ID)[text],
            "seq": numbers(attributed.capture.texts, SEQ)[text],
            "process": columns["process"],
            "thread": columns["thread"],
            "start_ns": columns["start"] - attributed.capture.began,
            "duration_ns": np.maximum(columns["end"] - columns["start"], 0),
            "gpu_ns": _own_work(attributed, ids[:-1], len(rows)),
            "backward": attributed.directions.ranges[rows],
            **{name: _texts(rows, *read(attributed)) for name, read in described.items()},
        }
    )


def _own_work(attributed: AttributedCapture, ids: Ints, count: int) -> Ints:
    owner = attributed.attribution.range
    is_owned = (owner != NONE) & attributed.counted
    of_node = ids[owner[is_owned]]
    return sums(of_node, attributed.duration[is_owned], count + 1)[1:]


def _texts(rows: Ints, code: Ints, distinct: list[str]) -> np.ndarray:
    return texts([*distinct, ""])[code[rows]]


def _data(attributed: AttributedCapture, rows: Ints) -> Table:
    """Return the edges of the data flow."""
    capture = attributed.capture
    text = capture.ranges.text[rows]
    op_id = numbers(capture.texts, OP_ID)[text]
    code, distinct = values(capture.texts, INPUT_OP_IDS).factorize()
    pairs = [PAIR.findall(t) for t in distinct]
    counts = np.array([*map(len, pairs)], np.int64)
    flat = np.array([pair for entry in pairs for pair in entry], np.int64).reshape(-1, 2)
    number = counts[code[text]] if len(counts) else np.zeros(len(rows), np.int64)
    target = np.repeat(np.arange(len(rows)), number)
    position = np.arange(len(target)) - np.repeat(np.cumsum(number) - number, number)
    first = np.cumsum(counts) - counts
    entry = first[code[text][target]] + position if len(counts) else position
    producer, output = flat[entry].T
    keys = [capture.ranges.report[rows], capture.ranges.process[rows]]
    of_node, of_producer = key_codes([*keys, op_id], [*(key[target] for key in keys), producer])
    place = np.full(int(max(of_node.max(initial=0), of_producer.max(initial=0))) + 1, NONE)
    known = np.flatnonzero(op_id > 0)
    place[of_node[known]] = known
    source = np.where(producer > 0, place[of_producer], NONE)
    used = np.flatnonzero(source != NONE)
    tensor, _ = number_groups(source[used], output[used])
    return _edges(
        DATA,
        source[used],
        target=target[used],
        output=output[used],
        position=position[used],
        tensor=tensor + 1,
    )


def _backward(attributed: AttributedCapture, rows: Ints) -> Table:
    """Return an edge from each forward call to the outermost backward calls of it."""
    nesting, forward = attributed.attribution.nesting, attributed.directions.forward
    node = nesting.first_nodes(len(attributed.capture.ranges))[rows]
    of_node = lookup(forward, node)
    of_parent = lookup(forward, nesting.parent)
    around = lookup(of_parent, node)
    outermost = (of_node != NONE) & (around != of_node)
    ids = np.append(_ids(attributed, rows), 0)
    target = np.flatnonzero(outermost & (ids[of_node] > 0))
    source = ids[of_node[target]] - 1
    none = np.full(len(target), NONE)
    return _edges(
        BACKWARD,
        source,
        target=target,
        output=none,
        position=none,
        tensor=np.zeros(len(target), np.int64),
    )


def _edges(
    kind: str, source: Ints, target: Ints, output: Ints, position: Ints, tensor: Ints
) -> Table:
    columns = {"source": source + 1, "target": target + 1, "output": output, "input": position}
    return Table({"kind": texts([kind] * len(source)), **columns, "tensor": tensor})


def parsed(text: str) -> list[object]:
    """Return the entries of a JSON list, none for other text."""
    try:
        result = json.loads(text) if text.startswith("[") else []
    except (ValueError, RecursionError):
        return []
    return result if isinstance(result, list) else []
