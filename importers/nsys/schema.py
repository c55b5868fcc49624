"""The only place that names tables and columns of Nsight Systems' SQLite exports.

Columns are probed, versions never asked: a table or column that an export lacks gives an empty frame
or the missing value. What differs between versions 2021 to 2026 is said beside the column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from importers.columns import Query
from importers.errors import NotAReport

MISSING = -1
NO_END = -(2**63 - 1)  # stands for an end that is NULL: before any start, so never a valid one
THREAD_BITS = 0xFFFFFF  # globalTid = hardware (8 bits) | vm (8) | process (24) | thread (24)

MARK = (34, 65)  # ENUM_NSYS_EVENT_TYPE; the exports' own ENUM tables may be absent or empty
PUSH_POP = (59, 70)
START_END = (60, 71)
CATEGORY_NAME = 33
DOMAIN_NAME = 75

COPY_KINDS = {  # ENUM_CUDA_MEMCPY_OPER, with the labels that nsys prints
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
FILL = "[CUDA memset]"
GRAPH = "[CUDA graph {}]"


@dataclass(frozen=True)
class Column:
    """Where one of our columns comes from: the first of ``theirs`` that is not NULL."""

    theirs: tuple[str, ...]
    needed: bool = False
    text: bool = False
    missing: int = MISSING
    mixed: bool = False  # may hold values of another type than it should: leave those out
    detail: bool = False  # said of a single activity or range, and needed by no table of figures

    def sql(self, present: set[str]) -> str | None:
        """Return the expression that reads it, or None for a needed column that is not there."""
        found = [f'"{name}"' for name in self.theirs if name in present]
        if self.needed:
            return found[0] if found else None
        if self.mixed:
            kind = "text" if self.text else "integer"
            found = [f"iif(typeof({name}) = '{kind}', {name}, NULL)" for name in found]
        missing = "''" if self.text else str(self.missing)
        return f"coalesce({', '.join([*found, missing])})" if found else missing


def needed(name: str) -> Column:
    """A column without which the table means nothing."""
    return Column((name,), needed=True)


def maybe(*names: str, missing: int = MISSING) -> Column:
    """A column that may be absent, or go by several names."""
    return Column(names, missing=missing)


def detail(*names: str, missing: int = MISSING) -> Column:
    """A column that may be absent and that only those need who show single rows."""
    return Column(names, missing=missing, detail=True)


def text(*names: str) -> Column:
    """A column of texts, '' where absent."""
    return Column(names, text=True)


@dataclass(frozen=True)
class Table:
    """One table of theirs and the columns of ours that it fills."""

    name: str
    columns: Mapping[str, Column]
    core: bool = False  # a report whose table lacks a needed column cannot be read

    def query(self, tables: Mapping[str, set[str]], *, details: bool = True) -> Query | None:
        """Return how to read it from an export with these tables, None if it is not there."""
        theirs = self._newest(tables)
        if theirs is None:
            return None
        wanted = {ours: c for ours, c in self.columns.items() if details or not c.detail}
        found = {ours: column.sql(tables[theirs]) for ours, column in wanted.items()}
        absent = [wanted[ours].theirs[0] for ours, sql in found.items() if sql is None]
        if absent and not self.core:
            return None  # another table of that name: what it would have told is not known
        if absent:
            raise NotAReport(f"table {theirs} has no column {absent[0]}: an unknown schema")
        texts = frozenset(ours for ours, column in wanted.items() if column.text)
        return Query(theirs, {o: sql for o, sql in found.items() if sql}, texts)

    def _newest(self, tables: Mapping[str, set[str]]) -> str | None:
        """Return the table's name in this export: newer ones may carry a suffix like _V2."""
        own = re.compile(rf"{self.name}(?:_V(\d+))?")
        found = [m for m in map(own.fullmatch, tables) if m]
        return max(found, key=lambda m: int(m[1] or 0)).string if found else None


_WHEN = {"start": needed("start"), "end": maybe("end", missing=NO_END)}
_WHERE = {  # columns of everything that runs on a device
    "device": maybe("deviceId"),
    "context": maybe("contextId"),
    "stream": maybe("streamId"),
    "process": maybe("globalPid"),
    "correlation": maybe("correlationId"),
}

STRINGS = Table("StringIds", {"id": needed("id"), "value": text("value")}, core=True)
KERNELS = Table(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    {
        **_WHEN,
        **_WHERE,
        "name": maybe("shortName", "demangledName"),
        "full_name": maybe("demangledName", "shortName"),
        "mangled": detail("mangledName", "demangledName"),  # not in exports up to 2021
        "grid_x": detail("gridX"),
        "grid_y": detail("gridY"),
        "grid_z": detail("gridZ"),
        "block_x": detail("blockX"),
        "block_y": detail("blockY"),
        "block_z": detail("blockZ"),
        "registers": detail("registersPerThread"),
        "shared_static": detail("staticSharedMemory"),
        "shared_dynamic": detail("dynamicSharedMemory"),
        "graph": detail("graphId"),  # from 3.2x on
        "graph_node": maybe("graphNodeId"),
    },
    core=True,
)
COPIES = Table(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    {
        **_WHEN,
        **_WHERE,
        "bytes": maybe("bytes"),
        "copy_kind": maybe("copyKind", missing=0),
        "graph_node": maybe("graphNodeId"),
    },
)
FILLS = Table(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    {**_WHEN, **_WHERE, "bytes": maybe("bytes"), "graph_node": maybe("graphNodeId")},
)
GRAPHS = Table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**_WHEN, **_WHERE, "graph": maybe("graphId")})
LAUNCHES = Table(  # runtime and driver calls alike
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    {
        **_WHEN,
        "thread": maybe("globalTid"),
        "correlation": maybe("correlationId"),
        "name": maybe("nameId"),
    },
    core=True,
)
ANNOTATIONS = Table(
    "NVTX_EVENTS",
    {
        **_WHEN,
        "type": needed("eventType"),
        "thread": maybe("globalTid"),
        "domain": maybe("domainId", missing=0),
        "category": detail("category", missing=0),
        "color": detail("color"),
        "payload": maybe("int64Value", "uint64Value", "int32Value", "uint32Value"),
        # Some writers put the name itself where its id belongs; SQLite lets them.
        "text_id": Column(("textId",), mixed=True),
        "text": Column(("text", "textId"), text=True, mixed=True),
    },
    core=True,
)
_NODE = {
    "time": needed("start"),
    "thread": maybe("globalTid"),
    "node": maybe("graphNodeId"),
    "original": maybe("originalGraphNodeId"),
}
GRAPH_NODES = (  # creations of graph nodes; the older name has come to stand for creations of graphs
    Table("CUDA_GRAPH_NODE_EVENTS", _NODE),
    Table("CUDA_GRAPH_EVENTS", _NODE),
)
PROCESSES = Table("PROCESSES", {"process": maybe("globalPid"), "name": text("name")})
THREADS = Table(
    "ThreadNames",
    {"thread": maybe("globalTid"), "name": maybe("nameId"), "priority": maybe("priority")},
)
GPUS = Table(
    "TARGET_INFO_GPU",
    {"gpu": maybe("id"), "device": maybe("cuDevice", "id"), "name": text("name")},
)
DEVICES = Table(  # from 3.20 on: which GPU a process calls device 0
    "TARGET_INFO_CUDA_DEVICE",
    {"gpu": maybe("gpuId"), "device": maybe("cudaId"), "pid": maybe("pid")},
)
SESSION = Table("ANALYSIS_DETAILS", {"duration": Column(("duration",), mixed=True)})
VERSIONS = (  # renamed after 3.1
    Table("META_DATA_EXPORT", {"name": text("name"), "value": text("value")}),
    Table("EXPORT_META_DATA", {"name": text("name"), "value": text("value")}),
)
PRODUCT_VERSION, SCHEMA_VERSION = "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"

READ = {  # everything that a report is made of, by the name it is read under
    "strings": STRINGS,
    "kernels": KERNELS,
    "copies": COPIES,
    "fills": FILLS,
    "graphs": GRAPHS,
    "launches": LAUNCHES,
    "annotations": ANNOTATIONS,
    "graph_nodes": GRAPH_NODES[0],
    "graph_nodes_old": GRAPH_NODES[1],
    "processes": PROCESSES,
    "threads": THREADS,
    "gpus": GPUS,
    "devices": DEVICES,
    "session": SESSION,
    "versions": VERSIONS[0],
    "versions_old": VERSIONS[1],
}
