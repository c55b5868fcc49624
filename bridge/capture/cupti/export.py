"""Make a report of spools: an SQLite file with the tables of Nsight Systems, which `bridge import` and others read.

Times in it count from the earliest start of a process. Those of the GPU and of CUDA calls are CUPTI's, shifted by one
constant per process; those of ranges are the host's, brought to CUPTI's clock by the pairs that were read meanwhile.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bridge.capture.cupti import records
from bridge.capture.cupti.annotations import AnnotationTables
from bridge.capture.cupti.clock import Clock
from bridge.capture.cupti.collector import DRIVER_API, NO_ORIGINAL, RUNTIME_API
from bridge.capture.cupti.names import kernel_name
from bridge.capture.cupti.spool import (
    NODE_FIELDS,
    NODES,
    Process,
    read_processes,
)
from bridge.capture.tool import CaptureError
from bridge.importers import frames
from bridge.importers.nsys import schema
from bridge.importers.nsys.write import ExportWriter, Strings, where, without, without_zero
from bridge.importers.recording.lines import PROCESS_BITS
from bridge.knowledge.package import VERSION
from bridge.output import whole

Ints = np.ndarray
Columns = dict[str, Any]

INFO, WARNING = (frames.SEVERITIES.index(name) for name in ("info", "warning"))
OVERHEADS = {  # CUpti_ActivityOverheadKind
    1: "CUDA driver compiler",
    1 << 16: "CUPTI buffer flush",
    2 << 16: "CUPTI instrumentation",
    3 << 16: "CUPTI resource",
    4 << 16: "Runtime triggered module loading",
    5 << 16: "Lazy function loading",
    6 << 16: "Command buffer full",
    7 << 16: "Activity buffer request",
    8 << 16: "Unified memory activity init",
}
THREAD_OBJECT = 2  # CUpti_ActivityObjectKind: a thread
SCHEMA = "3.20.0"  # the version of nsys' schema whose columns are written


def write_report(
    folder: Path, path: Path, *, force: bool = False, origin: int | None = None
) -> Path:
    """Write the spools below ``folder`` as one SQLite report, and return its path.

    ``origin`` is the host's monotonic time, ns, that is 0 in the report; by default the start of the first process.

    Raises CaptureError if they hold nothing, OutputError if the report cannot be written.
    """
    processes = read_processes(folder) if folder.is_dir() else []
    if not processes:
        raise CaptureError(
            f"{folder}: CUPTI recorded nothing: no process of the program started a capture"
        )
    with whole(path, force=force) as draft:
        Export(draft, processes, origin).write()
    return path


def remove_spools(folder: Path) -> None:
    """Delete the spools of a report that was written."""
    shutil.rmtree(folder, ignore_errors=True)


class Export:
    """An export that is being written."""

    def __init__(self, path: Path, processes: Sequence[Process], origin: int | None) -> None:
        self._writer = ExportWriter(path)
        self._processes = processes
        self.pids = {process.pid for process in processes}  # that have a spool
        self._strings = Strings()
        begun = processes[0].clocks[0][1]
        self._origin = begun if origin is None else origin
        self._epoch = processes[0].clocks[0][2] - begun + self._origin
        self._end = 0
        self._notes: list[tuple[int, int, str]] = []  # process, severity, text
        self._gpus: dict[str, dict[str, Any]] = {}  # by UUID, or by number where that is unknown

    def write(self) -> None:
        try:
            for process in self._processes:
                ProcessTables(self, process).write()
            self._write_facts()
        finally:
            self._writer.close()

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows; integers may be arrays, and one value stands for a whole column."""
        length = max(
            (len(c) for c in columns.values() if isinstance(c, np.ndarray | list)), default=1
        )
        if length:
            self._writer.append(table, {n: _as_list(c, length) for n, c in columns.items()})

    def text(self, text: str) -> int:
        return self._strings(text)

    def note(self, process: int, text: str, severity: int = WARNING) -> None:
        self._notes.append((process, severity, text))

    def extend(self, end: int) -> None:
        self._end = max(self._end, end)

    def gpu(self, key: str, number: int, facts: Mapping[str, Any]) -> int:
        """Note a GPU that a process calls ``number``, and return its number in the report.

        Two processes may call different GPUs device 0 (`CUDA_VISIBLE_DEVICES`).
        """
        if key not in self._gpus:
            used = {row["gpu"] for row in self._gpus.values()}
            free = number if number not in used else max(used) + 1
            self._gpus[key] = {"gpu": free, "device": free}
        row = self._gpus[key]
        row |= {name: value for name, value in facts.items() if name not in ("gpu", "device")}
        return int(row["gpu"])

    @property
    def origin(self) -> int:
        """The host's time at which the report begins, ns."""
        return self._origin

    def _write_facts(self) -> None:
        for row in self._gpus.values():
            self.add("gpus", row)
        for process, severity, text in self._notes:
            note = {"time": 0, "process": process, "source": schema.TARGET}
            self.add("diagnostics", {**note, "severity": severity, "text_id": self.text(text)})
        first = self._processes[0]
        self.add("session", {"duration": self._end})
        self.add("epoch", {"epoch": self._epoch})
        self.add("system", {"name": schema.HOST, "value": str(first.facts.get("host", ""))})
        traced = [f"PROCESS_0:{name}" for name in (schema.CUDA_TRACE, schema.NVTX_TRACE)]
        self.add("capture", {"name": traced, "value": "true"})
        versions = {
            schema.PRODUCT_VERSION: f"nsight-bridge {VERSION} by CUPTI {first.facts.get('cupti', '')}",
            schema.SCHEMA_VERSION: SCHEMA,
        }
        self.add("versions", {"name": [*versions], "value": [*versions.values()]})
        strings = self._strings.ids
        self.add("strings", {"id": [*strings.values()], "value": [*strings]})


def _as_list(column: Any, length: int) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return column if isinstance(column, list) else [column] * length


class ProcessTables:
    """Writes the rows of one process."""

    def __init__(self, export: Export, process: Process) -> None:
        self._export, self._process = export, process
        self._bits = process.pid << PROCESS_BITS
        self._clock = Clock(process, export.origin)
        self._kernel_names: dict[int, tuple[int, int, int]] = {}
        self._device_of_context: dict[int, int] = {}
        self._untimed = 0  # records without times, which are left out

    def write(self) -> None:
        self._export.add(
            "processes",
            {"process": self._bits, "name": str(self._process.facts.get("program") or "python")},
        )
        self._devices()
        self._kernels()
        self._copies()
        self._whole_graphs()
        self._waits()
        self._memory()
        self._overhead()
        self._calls()
        self._graph_nodes()
        AnnotationTables(self._export, self._process, self._clock).write()
        for text in self._messages():
            self._export.note(self._bits, text)

    def _messages(self) -> Iterator[str]:
        process = self._process
        if process.dropped:
            yield f"CUPTI dropped {process.dropped} records of process {process.pid}: kernels or calls are lost"
        if self._untimed:
            yield f"{self._untimed} records of process {process.pid} have no times, and are lost"
        if process.lost_nodes:
            yield f"{process.lost_nodes} creations of nodes of CUDA graphs of process {process.pid} are lost"
        yield from process.missing
        if process.failed:
            yield f"process {process.pid} stopped recording: {process.failed}; the rest is lost"
        elif not process.stopped:
            yield f"process {process.pid} was killed: what was in flight is lost"

    def _timed(self, kind: int) -> Iterator[np.ndarray]:
        """Yield the records of a kind that have times; CUPTI writes 0 for those that it could not take."""
        for rows in self._process.records(kind):
            known = (rows["start"] > 0) & (rows["end"] >= rows["start"])
            self._untimed += int((~known).sum())
            if known.any():
                yield rows[known]

    def _place(self, rows: np.ndarray) -> Columns:
        """Return the columns that all activities have."""
        start, end = self._clock.of_cupti(rows["start"]), self._clock.of_cupti(rows["end"])
        if {"context", "device"} <= {*(rows.dtype.names or ())}:
            self._note_contexts(rows)
        if len(end):
            self._export.extend(int(end.max()))
        columns: Columns = {"start": start, "end": end, "process": self._bits}
        for name in ("device", "context", "stream", "correlation"):
            if name in (rows.dtype.names or ()):
                columns[name] = rows[name]
        if "graph_node" in (rows.dtype.names or ()):
            columns["graph_node"] = without_zero(rows["graph_node"])
        return columns

    def _kernels(self) -> None:
        plain = (
            "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_static",
            "shared_dynamic",
        )  # fmt: skip
        for rows in self._timed(records.KERNEL):
            pointers, inverse = np.unique(rows["name"], return_inverse=True)
            ids = np.array([self._name_ids(int(p)) for p in pointers], np.int64).reshape(-1, 3)[
                inverse
            ]
            self._export.add(
                "kernels",
                {
                    **self._place(rows),
                    **{name: rows[name] for name in plain},
                    "name": ids[:, 0],
                    "full_name": ids[:, 1],
                    "mangled": ids[:, 2],
                    "graph": without_zero(rows["graph"]),
                },
            )

    def _name_ids(self, pointer: int) -> tuple[int, int, int]:
        if pointer not in self._kernel_names:
            forms = kernel_name(self._process.names.get(pointer, "unknown kernel"))
            self._kernel_names[pointer] = tuple(self._export.text(form) for form in forms)  # type: ignore[assignment]
        return self._kernel_names[pointer]

    def _copies(self) -> None:
        for kind in (records.MEMCPY, records.PEER_COPY):
            for rows in self._timed(kind):
                copy_kind = rows["copy_kind"] if kind == records.MEMCPY else schema.PEER_COPY
                self._export.add(
                    "copies",
                    {
                        **self._place(rows),
                        "bytes": rows["bytes"],
                        "copy_kind": copy_kind,
                        "source_kind": _memory_kind(rows["source_kind"]),
                        "target_kind": _memory_kind(rows["target_kind"]),
                    },
                )
        for rows in self._timed(records.MEMSET):
            columns = {"bytes": rows["bytes"], "target_kind": _memory_kind(rows["target_kind"])}
            self._export.add("fills", {**self._place(rows), **columns})

    def _whole_graphs(self) -> None:
        for rows in self._timed(records.GRAPH_TRACE):
            self._export.add("graphs", {**self._place(rows), "graph": rows["graph"]})

    def _waits(self) -> None:
        for rows in self._timed(records.SYNCHRONIZATION):
            columns = self._of_device(rows) | {"event": rows["event"], "kind": rows["kind"]}
            self._export.add("syncs", {**self._place(rows), **columns})
        for rows in self._process.records(records.CUDA_EVENT):
            columns = self._of_device(rows) | {
                "event": rows["event"],
                "correlation": rows["correlation"],
            }
            self._export.add("events", columns)

    def _of_device(self, rows: np.ndarray) -> Columns:
        """Return the place of records that name a context, but no device."""
        contexts, inverse = np.unique(rows["context"], return_inverse=True)
        devices = np.array([self._device_of_context.get(int(c), -1) for c in contexts], np.int64)
        return {
            "device": without(devices[inverse], -1),
            "context": rows["context"],
            "stream": rows["stream"],
            "process": self._bits,
        }

    def _memory(self) -> None:
        for rows in self._process.records(records.MEMORY):
            pooled = rows["pool"] != 0
            pool = {name: where(pooled, rows[name]) for name in ("pool", "reserved", "allocated")}
            plain = ("device", "context", "stream", "correlation", "bytes")
            self._export.add(
                "memory",
                {
                    "time": self._clock.of_cupti(rows["time"]),
                    **{name: rows[name] for name in plain},
                    "process": self._bits,
                    "address": rows["address"].astype(np.int64),
                    "kind": _memory_kind(rows["kind"]),
                    "operation": rows["operation"].astype(np.int64) - 1,  # allocation 0, release 1
                    **pool,
                },
            )

    def _overhead(self) -> None:
        for rows in self._timed(records.OVERHEAD):
            place = self._place(rows)
            of_thread = rows["object_kind"] == THREAD_OBJECT
            thread = rows["thread"].astype(np.int64) | self._bits
            kinds, inverse = np.unique(rows["kind"], return_inverse=True)
            texts = [self._export.text(OVERHEADS.get(int(kind), "Overhead")) for kind in kinds]
            names = np.array(texts, np.int64)[inverse]
            columns = {"thread": where(of_thread, thread), "name": names}
            self._export.add("overhead", {"start": place["start"], "end": place["end"], **columns})

    def _calls(self) -> None:
        """Write calls of the runtime, and those of the driver that no call of the runtime made."""
        outer = [np.unique(rows["correlation"]) for rows in self._process.records(records.RUNTIME)]
        by_runtime = np.unique(np.concatenate(outer)) if outer else np.empty(0, np.uint32)
        for kind, domain in ((records.RUNTIME, RUNTIME_API), (records.DRIVER, DRIVER_API)):
            for calls in self._timed(kind):
                if kind == records.DRIVER:
                    is_outer = ~np.isin(calls["correlation"], by_runtime)
                    self._add_calls(calls[is_outer], domain)
                else:
                    self._add_calls(calls, domain)

    def _add_calls(self, rows: np.ndarray, domain: int) -> None:
        if len(rows):
            self._export.add("launches", self._call_columns(rows, domain))

    def _call_columns(self, rows: np.ndarray, domain: int) -> Columns:
        numbers, inverse = np.unique(rows["cbid"], return_inverse=True)
        texts = [self._process.calls.get((domain, int(n))) or f"call {n}" for n in numbers]
        place = self._place(rows)
        return {
            "start": place["start"],
            "end": place["end"],
            "thread": rows["thread"].astype(np.int64) | self._bits,
            "correlation": rows["correlation"],
            "result": rows["result"],
            "name": np.array([self._export.text(text) for text in texts], np.int64)[inverse],
        }

    def _graph_nodes(self) -> None:
        rows = self._process.rows(NODES, NODE_FIELDS)
        self._export.add(
            "graph_nodes",
            {
                "time": self._clock.of_cupti(rows["time"]),
                "thread": rows["thread"] | self._bits,
                "node": rows["node"],
                "original": without(rows["original"], NO_ORIGINAL),
            },
        )

    def _devices(self) -> None:
        for rows in self._process.records(records.CONTEXT):
            self._note_contexts(rows)
        facts: dict[int, dict[str, Any]] = {}
        for rows in self._process.records(records.DEVICE):
            for row in rows:  # a row per GPU
                facts[int(row["gpu"])] = self._gpu(row)
        for told in self._process.gpus:
            facts[told["gpu"]] = facts.get(told["gpu"], {}) | _driver_facts(told)
        uuids = {told["gpu"]: told.get("uuid", "") for told in self._process.gpus}
        for number, gpu in sorted(facts.items()):
            key = uuids.get(number) or str(number)
            in_report = self._export.gpu(key, number, {"name": "GPU"} | gpu)
            self._export.add(
                "devices", {"gpu": in_report, "device": number, "pid": self._process.pid}
            )

    def _note_contexts(self, rows: np.ndarray) -> None:
        """Note of which device contexts are, by records that tell both."""
        pairs = np.unique(np.stack([rows["context"], rows["device"]], axis=1), axis=0)
        self._device_of_context |= dict(pairs.tolist())

    def _gpu(self, row: Any) -> Columns:
        plain = {n: int(row[n]) for n in row.dtype.names if n not in ("name", "clock_khz", "gpu")}
        return {
            **plain,
            "clock_hz": int(row["clock_khz"]) * 1000,
            "memory_bandwidth": plain["memory_bandwidth"] * 1000,  # CUPTI's is in kB/s
            "name": self._process.names.get(int(row["name"]), "GPU"),
        }


def _driver_facts(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the driver told of a GPU, in the units of the report."""
    plain = ("gpu", "uuid", "clock_khz", "memory_clock_khz", "memory_bus_bits", "threads_per_sm")
    facts = {name: value for name, value in told.items() if name not in plain}
    if "clock_khz" in told:
        facts["clock_hz"] = told["clock_khz"] * 1000
    if "memory_clock_khz" in told and "memory_bus_bits" in told:  # two transfers per clock
        facts["memory_bandwidth"] = (
            told["memory_clock_khz"] * 1000 * 2 * told["memory_bus_bits"] // 8
        )
    if "threads_per_sm" in told and told.get("warp_size"):
        facts["warps_per_sm"] = told["threads_per_sm"] // told["warp_size"]
    return facts


def _memory_kind(kinds: np.ndarray) -> Ints:
    """Return kinds of memory as nsys numbers them: from 0 on, where CUPTI has 1."""
    kinds = kinds.astype(np.int64)
    return np.where(kinds == 0, schema.UNKNOWN_MEMORY, kinds - 1)
