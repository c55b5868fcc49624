"""Nodes of CUDA graphs that are no work of a GPU, as Cuspy records them: callbacks on the host, records of events.

A callback is a range, a record of an event a mark, on a thread of their own in each process: no API call is made
there, so that they own no work of a GPU, and add no time of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import Capture
from bridge.importers.frames import GRAPH_HOST_NODE, HOST_NODES_THREAD, Names, distinct_keys
from bridge.importers.kineto.device import DeviceEvents, nodes_of
from bridge.importers.kineto.events import EVENT_NODES, HOST_NODES, clean_names
from bridge.importers.texts import Texts

FUNCTION, UNKNOWN_FUNCTION, EVENT_RECORD = "host fn", "HostNode", "EventRecord"
THREAD_NAME = "host and event nodes of CUDA graphs"


def with_host_nodes(
    capture: Capture, by: Mapping[str, DeviceEvents], process: Mapping[str, Ints]
) -> Capture:
    """Return the capture of one file with ranges and marks of such nodes; ``process`` is by sort."""
    host, records = by[HOST_NODES], by[EVENT_NODES]
    if not len(host) + len(records):
        return capture
    ranges, texts = _ranges(host, _known(process[HOST_NODES]), len(capture.texts))
    marks = _marks(records, _known(process[EVENT_NODES]))
    homes = np.unique(np.concatenate((ranges.process, marks.process)))
    name = Names(np.zeros(len(homes), np.int64), [THREAD_NAME])
    threads = frames.Threads(thread=homes | HOST_NODES_THREAD, process=homes, name=name)
    [facts], chains = capture.facts, capture.chains
    times = np.concatenate((facts.span, ranges.start, ranges.end, marks.time))
    if len(chains.range):  # a row per range
        none = np.full(len(ranges), MISSING)
        chains = replace(chains, range=np.concatenate((chains.range, none)))
    return replace(
        capture,
        facts=(replace(facts, span=(int(times.min()), int(times.max()))),),
        ranges=frames.Ranges.concat([capture.ranges, ranges]),
        marks=frames.Marks.concat([capture.marks, marks]),
        threads=frames.Threads.concat([capture.threads, threads]),
        texts=Texts.concat([capture.texts, texts]),
        chains=chains,
    )


def _known(process: Ints) -> Ints:
    """Return the process of each node, 0 where it is not known: what is on a host has one."""
    return np.where(process == MISSING, 0, process)


def _ranges(nodes: DeviceEvents, process: Ints, first: int) -> tuple[frames.Ranges, Texts]:
    """Return a range for each callback, called as its function, and their texts; ``first`` numbers these."""
    count, told = len(nodes), nodes.texts(FUNCTION)
    names = Names.concat([clean_names(told.texts), Names.of([UNKNOWN_FUNCTION])])
    unknown, named = len(names) - 1, told.codes
    name = names[np.where(told.matching(bool), named, unknown)]
    columns = {
        "start": nodes.start,
        "end": nodes.end,
        "process": process,
        "thread": process | HOST_NODES_THREAD,
        "name": name,
        "kind": Names(np.zeros(count, np.int64), frames.RANGE_KINDS),
        "category": Names(np.zeros(count, np.int64), [GRAPH_HOST_NODE]),
        "json": _details(nodes),
        "domain": np.zeros(count, np.int64),
        "domain_name": Names(np.zeros(count, np.int64), [""]),
        "text": first + name.codes,
    }
    return frames.Ranges(columns), Texts.of(name.texts)


def _marks(nodes: DeviceEvents, process: Ints) -> frames.Marks:
    """Return a mark for each record of an event."""
    none = np.zeros(len(nodes), np.int64)
    return frames.Marks(
        time=nodes.start,
        process=process,
        thread=process | HOST_NODES_THREAD,
        domain=none,
        domain_name=Names(none, [""]),
        name=Names(none, [EVENT_RECORD]),
        json=_details(nodes),
    )


def _details(nodes: DeviceEvents) -> Names:
    """Return graph and node as JSON."""
    graph, node = nodes_of(nodes)
    code, first = distinct_keys(graph, node)
    pairs = zip(graph[first].tolist(), node[first].tolist(), strict=True)
    return Names(code, [json.dumps({"graph": g, frames.GRAPH_NODE: n}) for g, n in pairs])
