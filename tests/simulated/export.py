"""Writes the exports that Nsight Systems would have made of a run, by NVIDIA's own names of tables and columns.

NVIDIA's report scripts read them. The forms are those of recent exports (3.20 and newer): enumerations as tables,
contexts with their null streams, streams with their flags, synchronization records with event ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from simulated.calls import MANAGED_H2D, NONE
from simulated.device import Context, Kind, Work
from simulated.host import Process, Thread
from simulated.machine import Machine
from simulated.programs import Result

PUSH_POP, OS_RUNTIME, RUNTIME = 59, 27, 0
EPOCH = 1_700_000_000 * 10**9
PAGEABLE, PINNED, DEVICE = 0, 1, 2
H2D, D2H, D2D, PEER = 1, 2, 8, 10
GPU_NAME = "NVIDIA A100-SXM4-40GB"
# The driver's own streams, as every export lists them: number and flag.
OWN_STREAMS = ((6, 1), *((number, 2) for number in range(8, 13)), (13, 1))
ENUMS = {
    "ENUM_CUDA_MEMCPY_OPER": (
        *(
            (0, "UNKNOWN", "Unknown"),
            (1, "HTOD", "Host-to-Device"),
            (2, "DTOH", "Device-to-Host"),
            (8, "DTOD", "Device-to-Device"),
            (9, "HTOH", "Host-to-Host"),
            (10, "PTOP", "Peer-to-Peer"),
            (11, "UVM_HTOD", "Unified Host-to-Device"),
            (12, "UVM_DTOH", "Unified Device-to-Host"),
        ),
    ),
    "ENUM_CUDA_MEM_KIND": (
        (0, "PAGEABLE", "Pageable"),
        (1, "PINNED", "Pinned"),
        (2, "DEVICE", "Device"),
        (4, "MANAGED", "Managed"),
    ),
    "ENUM_CUPTI_SYNC_TYPE": (
        (0, "UNKNOWN", "Unknown"),
        (1, "EVENT_SYNCHRONIZE", "Event sync"),
        (2, "STREAM_WAIT_EVENT", "Stream wait sync"),
        (3, "STREAM_SYNCHRONIZE", "Stream sync"),
        (4, "CONTEXT_SYNCHRONIZE", "Context sync"),
    ),
    "ENUM_CUPTI_STREAM_TYPE": (
        (1, "DEFAULT", "Default"),
        (2, "NON_BLOCKING", "Non-blocking"),
        (3, "NULL", "Null"),
    ),
}
TEXTS = frozenset("text value name label utcTime uuid".split())

_CALLS = "start end eventClass globalTid correlationId nameId returnValue callchainId"
_OS = "start end eventClass globalTid nameId returnValue nestingLevel callchainId argumentsId"
_NVTX = "start end eventType rangeId category color text globalTid endGlobalTid textId domainId"
_WHERE = "start end deviceId contextId streamId correlationId globalPid"
_KERNELS = (
    f"{_WHERE} demangledName shortName mangledName registersPerThread gridX gridY gridZ blockX"
    " blockY blockZ staticSharedMemory dynamicSharedMemory graphNodeId graphId"
)
_COPIES = (
    f"{_WHERE} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId migrationCause graphNodeId"
    " copyCount"
)
COLUMNS = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_RUNTIME": _CALLS,
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNELS,
    "CUPTI_ACTIVITY_KIND_MEMCPY": _COPIES,
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_WHERE} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_WHERE} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_WHERE} syncType eventId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId contextId streamId correlationId globalPid eventId",
    "NVTX_EVENTS": _NVTX,
    "OSRT_API": _OS,
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue",
    "PROCESSES": "globalPid pid name",
    "ThreadNames": "nameId priority globalTid",
    "TARGET_INFO_CUDA_STREAM": "streamId hwId vmId processId contextId priority flag",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId hwId vmId processId deviceId contextId",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
    "TARGET_INFO_GPU": (
        "vmId id name totalMemory memoryBandwidth clockRate smCount uuid cuDevice computeMajor"
        " computeMinor"
    ),
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime",
    "TARGET_INFO_SYSTEM_ENV": "name value nameEnum",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "META_DATA_EXPORT": "name value",
}
# Written even where they are empty; the others only where they have rows, as nsys does.
ALWAYS = frozenset(("StringIds", "META_DATA_EXPORT"))


@dataclass
class Rows:
    """The rows of an export, by table; each row has the columns of `COLUMNS`."""

    tables: dict[str, list[Sequence[object]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Add rows to a table."""
        self.tables.setdefault(table, []).extend(rows)

    def string(self, text: str) -> int:
        """Return the id of a text."""
        return self.strings.setdefault(text, len(self.strings) + 1)

    def written(self, path: Path) -> Path:
        """Write the export."""
        path.unlink(missing_ok=True)
        strings = [(number, text) for text, number in self.strings.items()]
        tables: dict[str, list[Sequence[object]]] = {**self.tables, "StringIds": [*strings]}
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("BEGIN")
            for table, names in COLUMNS.items():
                rows = tables.get(table, [])
                if rows or table in ALWAYS:
                    _write(connection, table, names.split(), rows)
            for table, enum in ENUMS.items():
                _write(connection, table, ["id", "name", "label"], enum)
            connection.execute("COMMIT")
        return path


def _write(
    connection: sqlite3.Connection,
    table: str,
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> None:
    types = ", ".join(f'"{name}" {"TEXT" if name in TEXTS else "INTEGER"}' for name in names)
    connection.execute(f'CREATE TABLE "{table}" ({types})')
    marks = ", ".join("?" * len(names))
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)


def global_pid(process: Process) -> int:
    """Return nsys' number of a process."""
    return 1 << 48 | process.pid << 24


def global_tid(thread: Thread) -> int:
    """Return nsys' number of a thread."""
    return global_pid(thread.process) | thread.id


def write(result: Result, path: Path, *, per_process: bool = False) -> list[Path]:
    """Write the export of a run, or one per process with GPU work, and return the files.

    ``path`` is a file; with ``per_process`` the number of the rank goes before its suffix, and each file's clock begins at its
    own time, which the epoch of its session tells.
    """
    machine = result.machine
    recorded = [process for process in machine.processes if process.recorded]
    if not per_process:
        return [rows_of(machine, recorded).written(path)]
    ranks = [process for process in recorded if process.contexts]
    return [
        rows_of(machine, [process], shift=-1_000_003 * number).written(
            path.with_name(f"{path.stem}.{number}{path.suffix}")
        )
        for number, process in enumerate(ranks)
    ]


def rows_of(
    machine: Machine, processes: Sequence[Process], *, shift: int = 0, whole_graphs: bool = False
) -> Rows:
    """Return the rows of some processes; times are those of the machine less ``shift``."""
    rows, chosen = Rows(), frozenset(processes)
    _add_host(rows, machine, chosen, shift)
    _add_works(rows, machine, chosen, shift, whole_graphs=whole_graphs)
    _add_waits(rows, machine, chosen, shift)
    _add_places(rows, machine, processes)
    ends = [work.end for work in machine.works()]
    for host in (machine.calls, machine.ranges, machine.os_calls):
        ends += [row[1] for row in host]
    last = max(ends)
    stop = last - shift + 10_000_000
    rows.add("ANALYSIS_DETAILS", [(0, stop, 0, stop)])
    rows.add("TARGET_INFO_SESSION_START_TIME", [(EPOCH + shift, "2023-11-14T22:13:20")])
    rows.add("TARGET_INFO_SYSTEM_ENV", [("Hostname", "simulated", None)])
    rows.add(
        "META_DATA_EXPORT",
        [("EXPORT_PRODUCT_VERSION", "2025.1.1.0"), ("EXPORT_SCHEMA_VERSION", "3.20.0")],
    )
    return rows


def _add_host(rows: Rows, machine: Machine, chosen: frozenset[Process], shift: int) -> None:
    string = rows.string
    rows.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        (
            (s - shift, e - shift, RUNTIME, global_tid(t), correlation, string(name), result, None)
            for s, e, name, t, correlation, result in machine.calls
            if t.process in chosen
        ),
    )
    rows.add(
        "NVTX_EVENTS",
        (
            (s - shift, e - shift, PUSH_POP, *[None] * 3, text, global_tid(t), None, None, 0)
            for s, e, text, t, _ in sorted(machine.ranges, key=lambda row: (row[0], -row[1]))
            if t.process in chosen
        ),
    )
    rows.add(
        "OSRT_API",
        (
            (s - shift, e - shift, OS_RUNTIME, global_tid(t), string(name), 0, 0, 0, 0)
            for s, e, name, t in machine.os_calls
            if t.process in chosen
        ),
    )
    rows.add(
        "PROFILER_OVERHEAD",
        (
            (s - shift, e - shift, global_tid(t), string(name), 0)
            for s, e, name, t in machine.overhead
            if t.process in chosen
        ),
    )


def _add_works(
    rows: Rows,
    machine: Machine,
    chosen: frozenset[Process],
    shift: int,
    *,
    whole_graphs: bool,
) -> None:
    graphs: dict[tuple[Context, int], list[Work]] = {}
    for work in machine.works():
        context = work.stream.context
        if context.process not in chosen:
            continue
        if work.graph and whole_graphs:
            graphs.setdefault((context, work.correlation), []).append(work)
        else:
            _add_work(rows, work, shift)
    for nodes in graphs.values():
        place = _place(nodes[0], shift)
        end = max(node.end for node in nodes) - shift
        graph = nodes[0].graph
        row = (place[0], end, *place[2:], graph, graph + 1)
        rows.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", [row])


def _place(work: Work, shift: int) -> tuple[int, ...]:
    context = work.stream.context
    return (
        work.start - shift,
        work.end - shift,
        context.device,
        context.number,
        work.stream.number,
        work.correlation,
        global_pid(context.process),
    )


def _add_work(rows: Rows, work: Work, shift: int) -> None:
    place, node = _place(work, shift), work.node or None
    if work.kind is Kind.COPY:
        managed = work.copy_kind == MANAGED_H2D
        if managed:  # as in real exports: without context, stream and call
            place = (*place[:3], 0, 0, 0, place[6])
        kinds = {
            MANAGED_H2D: (7, 7),
            H2D: (PINNED if work.pinned else PAGEABLE, DEVICE),
            D2H: (DEVICE, PINNED if work.pinned else PAGEABLE),
        }.get(work.copy_kind, (DEVICE, DEVICE))
        peers = (work.stream.context.device, work.peer) if work.copy_kind == PEER else (None, None)
        row = (*place, work.bytes, work.copy_kind, *kinds, *peers, 2 if managed else None, node, 1)
        rows.add("CUPTI_ACTIVITY_KIND_MEMCPY", [row])
    elif work.kind is Kind.FILL:
        rows.add("CUPTI_ACTIVITY_KIND_MEMSET", [(*place, 0, work.bytes, node, DEVICE)])
    else:
        short = rows.string(work.name)
        full = rows.string(f"void {work.name}(float *, const float *, int)")
        mangled = rows.string(f"_Z{len(work.name)}{work.name}PfPKfi")
        shape = (32, 432, 1, 1, 256, 1, 1, 0, 0)
        row = (*place, full, short, mangled, *shape, node, work.graph or None)
        rows.add("CUPTI_ACTIVITY_KIND_KERNEL", [row])


def _add_waits(rows: Rows, machine: Machine, chosen: frozenset[Process], shift: int) -> None:
    rows.add(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        (
            (
                s - shift,
                e - shift,
                c.device,
                c.number,
                stream,
                correlation,
                global_pid(c.process),
                kind,
                event,
            )
            for s, e, c, stream, event, kind, correlation in machine.syncs
            if c.process in chosen
        ),
    )
    rows.add(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        (
            (c.device, c.number, stream, correlation, global_pid(c.process), event)
            for c, stream, event, correlation in machine.events
            if c.process in chosen
        ),
    )


def _add_places(rows: Rows, machine: Machine, processes: Sequence[Process]) -> None:
    """Add processes, threads, GPUs, contexts and streams."""
    for process in processes:
        rows.add("PROCESSES", [(global_pid(process), process.pid, process.name)])
        for thread in process.threads:
            rows.add("ThreadNames", [(rows.string(thread.name), 20, global_tid(thread))])
        for context in process.contexts.values():
            where = (0, 0, process.pid, context.number)
            info = (context.default.number, 0, 0, process.pid, context.device, context.number)
            rows.add("TARGET_INFO_CUDA_CONTEXT_INFO", [info])
            listed = [(s.number, s.blocking.value) for s in context.streams]
            rows.add(
                "TARGET_INFO_CUDA_STREAM",
                ((number, *where, 0, flag) for number, flag in (*OWN_STREAMS, *listed)),
            )
            gpu = context.gpu.number
            device = (gpu, context.device, process.pid, _uuid(gpu), 108)
            rows.add("TARGET_INFO_CUDA_DEVICE", [device])
    for card in machine.gpus:
        memory = (40 << 30, 1_555_000_000_000, 1_410_000_000, 108)
        row = (0, card.number, GPU_NAME, *memory, _uuid(card.number), card.number, 8, 0)
        rows.add("TARGET_INFO_GPU", [row])


def _uuid(gpu: int) -> str:
    return f"0000000{gpu}-1111-2222-3333-444444444444"


__all__ = ["NONE", "Rows", "rows_of", "write"]
