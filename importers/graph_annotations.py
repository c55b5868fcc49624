"""What PyTorch says of nodes of CUDA graphs, beside a profiler's report: names and Python lines of their kernels.

PyTorch 2.12 and later write two files: `torch.cuda.graph_annotations.get_kernel_annotations` as a pickle, and
`dump_kernel_py_stacks` as JSON packed by gzip; `graph_topology` reads a third. Both name a node by CUDA's tools id,
the id of the graph in the upper 32 bits and that of the node in the lower, which profilers record of each kernel of
a replay. Here each node gets an event that created it, within ranges of its names, at the begin of the report: its
work is attributed as if the report held the capture of the graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bridge.importers import frames, plain_data
from bridge.importers.arrays import MISSING, Flags, Ints
from bridge.importers.capture import Capture, rank_in_name
from bridge.importers.errors import NotAReport
from bridge.importers.frames import GRAPH_NODES_THREAD, HOST_NODES_THREAD, ID_BITS, Names
from bridge.importers.graph_topology import Topology, callbacks, topology_of, with_functions
from bridge.importers.kineto.events import unpacked
from bridge.importers.listener import Listener
from bridge.importers.records import record
from bridge.importers.texts import Texts

WHAT = "graph annotations"
THREAD_NAME = "nodes of CUDA graphs"
MAX_BYTES = 1 << 30
MAX_ID = (1 << 63) - 1
NAME, MODULES, PHASE = "name", ("module", "module_fqn", "fqn"), "autograd_phase"
SAID = frozenset([NAME, *MODULES, PHASE])  # among the arguments of a kernel in a trace
LANE = "stream"  # the lane on which PyTorch's own viewer draws a node
DEPTH = 2  # ranges around a node at most: its module, its name
WIDTH = 2 * DEPTH  # ns for the ranges of one label


def is_of_graph_node(thread: Ints) -> Flags:
    """Tell which threads are those of nodes of CUDA graphs: what is there is of no thread of the program."""
    result: Flags = (thread & ID_BITS) >= HOST_NODES_THREAD
    return result


# -- The files


@record
class Label:
    """What a file says of nodes: texts of the ranges around them, the outermost first, and details as JSON."""

    texts: tuple[str, ...]
    details: str


@record
class Annotations:
    """The labels of nodes of CUDA graphs, by their tools ids in ascending order; ``label`` is a place in ``labels``.

    ``named`` tells whether the nodes have names, and not Python stacks alone.
    """

    source: str
    node: Ints
    label: Ints
    labels: Sequence[Label]
    named: bool

    def __len__(self) -> int:
        return len(self.node)


def read_annotations(paths: Sequence[Path]) -> list[Annotations | Topology]:
    """Read files of annotations, of Python stacks, and of graphs; what the first two say of the same nodes becomes one.

    Files of other ranks, by their names, say it of other nodes. Raises NotAReport for other files.
    """
    result: list[tuple[str, dict[int, dict[str, Any]]]] = []
    topologies = []
    for path in paths:
        entries = _entries(path)
        if isinstance(entries, Topology):
            topologies.append(entries)
            continue
        of_rank = [known for name, known in result if rank_in_name(name) == rank_in_name(path.name)]
        if entries in of_rank:
            continue  # given twice
        others = next((others for others in of_rank if _completes(others, entries)), None)
        if others is None:
            result.append((path.name, entries))
        else:
            others.update({node: others.get(node, {}) | entry for node, entry in entries.items()})
    return [*(_labelled(name, entries) for name, entries in result), *topologies]


def _completes(others: Mapping[int, Any], entries: Mapping[int, Any]) -> bool:
    """Tell whether two files are of the same nodes and say different things: of two ranks they say the same."""
    both = others.keys() & entries.keys()
    return bool(both) and all(others[node].keys().isdisjoint(entries[node]) for node in both)


def _entries(path: Path) -> dict[int, dict[str, Any]] | Topology:
    """Return the ``annotation`` or the ``stack`` of each node in a file, or the graphs in it."""
    parsed = plain_data.parse(path.name, unpacked(path, MAX_BYTES), WHAT)
    try:
        if topology := topology_of(path.name, parsed):
            return topology
        nodes = parsed.items() if isinstance(parsed, dict) else ()
        entries = {_id(node): _entry(value) for node, value in nodes}
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise NotAReport(_odd(path)) from error
    if not entries:
        raise NotAReport(_odd(path))
    return entries


def _odd(path: Path) -> str:
    return (
        f"{path.name}: no annotations of CUDA graphs: give what get_kernel_annotations() returns, as a pickle,"
        " what dump_kernel_py_stacks() writes, or what get_graph_data() returns, as a pickle or JSON"
    )


def _id(node: object) -> int:
    """Return the tools id of a node, an integer or its digits; raises ValueError for others."""
    if not isinstance(node, int | str):
        raise TypeError(node)
    number = int(node)
    if not 0 < number <= MAX_ID:
        raise ValueError(node)
    return number


def _entry(value: object) -> dict[str, Any]:
    """Return what is said of one node: a list of one annotation, an annotation, or a stack as a text."""
    if isinstance(value, str):
        return {"stack": [_frame(line) for line in value.splitlines() if line]}
    listed = value if isinstance(value, list) else [value]
    merged: dict[str, Any] = {}
    for one in reversed(listed):  # the first is the innermost
        merged |= one if isinstance(one, dict) else {} if one is None else {NAME: str(one)}
    return {"annotation": merged}


def _frame(line: str) -> str:
    """Return ``file:line:function`` as stacks of recordings have it, ``file(line): function``."""
    file, number, function = line.rsplit(":", 2)
    return f"{file}({int(number)}): {function}"


def _labelled(source: str, entries: Mapping[int, dict[str, Any]]) -> Annotations:
    node = np.array(sorted(entries), np.int64)
    said = [json.dumps(entries[one], default=str) for one in node.tolist()]
    names = Names.of(said)
    parsed = [json.loads(text) for text in names.texts]
    return Annotations(
        source=source,
        node=node,
        label=names.codes,
        labels=[Label(_texts(one), _details(one)) for one in parsed],
        named=any("annotation" in one for one in parsed),
    )


def _texts(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the ranges of a node: the module of an annotation and its name, else the innermost Python function."""
    said = entry.get("annotation")
    if said is None:
        return tuple(entry["stack"][:1])
    backward = said.get(PHASE) == "backward"
    module = next((str(said[key]) for key in MODULES if said.get(key)), "")
    around = [f"{'backward' if backward else 'module'}:{module}"] if module else []
    others = {k: v for k, v in said.items() if k not in {PHASE, LANE, *MODULES}}
    name = str(others.pop(NAME, "")) or " ".join(f"{k}={v}" for k, v in others.items())
    own = [f"{name} (backward)" if backward else name] if name else []
    return (*around, *own)


def _details(entry: dict[str, Any]) -> str:
    """Return what `bridge report --by range --arguments` shows of a node, as recordings write it."""
    stack = {"stack": entry["stack"]} if entry.get("stack") else {}
    return json.dumps(entry.get("annotation", {}) | stack)


# -- Beside a report


Home = tuple[int, int]  # a report and a process


def annotated(
    capture: Capture, files: Iterable[Annotations | Topology], listener: Listener
) -> Capture:
    """Return the capture with the nodes of CUDA graphs as files label them; each belongs to one process.

    That is the process with most of its nodes. Raises NotAReport for a file that labels no node of the
    capture, or as many of several processes.
    """
    known = _known_nodes(capture)
    for one in files:
        home = _home(capture, known, one)
        if isinstance(one, Topology):
            ranges = capture.ranges
            of_home = (ranges.report == home[0]) & (ranges.process == home[1])
            capture, named = with_functions(capture, one, of_home)
            listener.say(f"{one.source}: names {named} callbacks of CUDA graphs that had no name")
            continue
        labelled = _of_nodes(capture, one, known[home])
        listener.say(
            f"{one.source}: labels {len(labelled)} of {len(known[home])} nodes of CUDA graphs"
        )
        capture = _with_nodes(capture, labelled, home)
    return capture


class Arguments(Protocol):
    """What a trace says of events, by row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Mapping[str, Any]: ...


def annotated_by_arguments(capture: Capture, arguments: Arguments) -> Capture:
    """Return the capture of a trace whose kernels have annotations among their arguments, as Cuspy writes them.

    ``arguments`` are those of the first activities of the capture, one each.
    """
    work, size = capture.activities, len(arguments)
    nodes = work.graph_node[:size]
    keys, first = np.unique(np.stack((work.process[:size], nodes)), axis=1, return_index=True)
    entries: dict[Home, dict[int, dict[str, Any]]] = {}
    for process, node, row in zip(*keys.tolist(), first.tolist(), strict=True):
        said = {key: value for key, value in arguments[row].items() if key in SAID}
        if said and node != MISSING:
            entries.setdefault((0, process), {})[node] = {"annotation": said}
    for home, labels in entries.items():
        capture = _with_nodes(capture, _labelled(capture.source[0], labels), home)
    return capture


def annotated_by_process(
    capture: Capture, process: int, said: Mapping[str, Mapping[str, Any]]
) -> Capture:
    """Return the capture of a file with what a process recorded of its own graphs, by kind and by the id of a node."""
    entries: dict[int, dict[str, Any]] = {}
    try:
        for nodes in said.values():
            for node, value in nodes.items():
                entries.setdefault(_id(node), {}).update(_entry(value))
    except (AttributeError, TypeError, ValueError):
        return capture
    home = 0, process
    labelled = _labelled(capture.source[0], entries)
    known = _known_nodes(capture).get(home, np.empty(0, np.int64))
    return _with_nodes(capture, _of_nodes(capture, labelled, known), home)


def _known_nodes(capture: Capture) -> dict[Home, Ints]:
    """Return the nodes of CUDA graphs in each process: those that ran, and those that were copied or created."""
    work, events = capture.activities, capture.graph_nodes
    columns = [(work.report, work.process, work.graph_node)]
    columns += [
        (events.report, events.process, column) for column in (events.node, events.original)
    ]
    rows, node = callbacks(capture)
    columns.append((capture.ranges.report[rows], capture.ranges.process[rows], node))
    report, process, node = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    is_node = node != MISSING
    report, process, node = report[is_node], process[is_node], node[is_node]
    homes = dict.fromkeys(zip(report.tolist(), process.tolist(), strict=True)) if len(node) else {}
    return {(r, p): np.unique(node[(report == r) & (process == p)]) for r, p in homes}


def _home(capture: Capture, known: Mapping[Home, Ints], labelled: Annotations | Topology) -> Home:
    """Return the process whose nodes a file labels."""
    counts = {home: int(np.isin(nodes, labelled.node).sum()) for home, nodes in known.items()}
    of_rank = [home for home in counts if counts[home] and _is_of_rank(capture, home, labelled)]
    if len(of_rank) == 1:
        return of_rank[0]
    most = max(counts.values(), default=0)
    reports = ", ".join(capture.source)
    if not most:
        raise NotAReport(
            f"{labelled.source}: labels no node of a CUDA graph in {reports}: is it of the same run,"
            " and was it recorded with --cuda-graph-trace=node?"
        )
    homes = [home for home, count in counts.items() if count == most]
    if len(homes) > 1:
        raise NotAReport(
            f"{labelled.source}: fits {len(homes)} processes of {reports} alike; give it with the report of its own"
        )
    return homes[0]


def _is_of_rank(capture: Capture, home: Home, labelled: Annotations | Topology) -> bool:
    """Return whether the names of a file and of a report hold the same rank."""
    return rank_in_name(labelled.source) == rank_in_name(capture.source[home[0]]) != MISSING


def _of_nodes(capture: Capture, labelled: Annotations, nodes: Ints) -> Annotations:
    """Return the labels of some nodes; a stack says less than ranges of the capture, where the report has that."""
    wanted = np.isin(labelled.node, nodes)
    if not labelled.named:
        wanted &= ~np.isin(labelled.node, capture.graph_nodes.node)
    return replace(labelled, node=labelled.node[wanted], label=labelled.label[wanted])


def _with_nodes(capture: Capture, labelled: Annotations, home: Home) -> Capture:
    """Return the capture with an event for each node, in ranges of its label."""
    node = labelled.node
    if not len(node):
        return capture
    code, label = np.unique(labelled.label, return_inverse=True)
    labels = [labelled.labels[one] for one in code.tolist()]
    report, process = home
    begin = capture.facts[report].span[0] + WIDTH * len(_former(capture, home))
    place = {"report": report, "process": process, "thread": process | GRAPH_NODES_THREAD}
    events = frames.GraphNodes(
        _repeated(place, len(node)) | {"node": node, "time": begin + WIDTH * label + DEPTH - 1}
    )
    ranges, texts = _ranges(capture, labels, begin, place)
    thread = frames.Threads(_repeated(place, 1) | {"name": Names.of([THREAD_NAME])})
    chains = capture.chains
    if len(chains.range):  # a row per range
        none = np.full(len(ranges), MISSING)
        chains = replace(chains, range=np.concatenate((chains.range, none)))
    return replace(
        capture,
        graph_nodes=frames.GraphNodes.concat([capture.graph_nodes, events]),
        ranges=frames.Ranges.concat([capture.ranges, ranges]),
        threads=frames.Threads.concat([capture.threads, thread]),
        texts=texts,
        chains=chains,
    )


def _former(capture: Capture, home: Home) -> Ints:
    """Return the rows of ranges that an earlier file gave a process: labels of files do not overlap."""
    ranges = capture.ranges
    rows: Ints = np.flatnonzero(
        (ranges.report == home[0]) & (ranges.thread == home[1] | GRAPH_NODES_THREAD)
    )
    return rows


def _repeated(place: Mapping[str, int], rows: int) -> dict[str, Any]:
    return {name: np.full(rows, value) for name, value in place.items()}


def _ranges(
    capture: Capture, labels: Sequence[Label], begin: int, place: Mapping[str, int]
) -> tuple[frames.Ranges, Texts]:
    """Return a range for each text of each label, one label after another, and the texts of all ranges."""
    rows = [
        (n, depth, text) for n, one in enumerate(labels) for depth, text in enumerate(one.texts)
    ]
    number, depth = (np.array([row[c] for row in rows], np.int64) for c in (0, 1))
    name = Names.of([row[2] for row in rows])
    start = begin + WIDTH * number + depth
    push = np.full(len(rows), frames.RANGE_KINDS.index(frames.PUSH_POP))
    columns = _repeated({**place, "domain": 0}, len(rows)) | {
        "start": start,
        "end": start + WIDTH - 2 * depth,
        "name": name,
        "kind": Names(push, frames.RANGE_KINDS),
        "domain_name": Names.of([""] * len(rows)),
        "category": Names.of([""] * len(rows)),
        "json": Names.of([labels[n].details for n, _, _ in rows]),
        "open": np.zeros(len(rows), bool),
        "text": name.codes + len(capture.texts),
    }
    return frames.Ranges(columns), Texts.concat([capture.texts, Texts.of(name.texts)])
