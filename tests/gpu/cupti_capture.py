"""Record kernels, CUDA calls and bridge's own annotations in this process by CUPTI; no nsys is needed.

    with Capture("run.sqlite"):                     # in a program
        train()
    python cupti_capture.py run.sqlite train.py …   # around a program

What is written is read by `bridge import run.sqlite` as an export of Nsight Systems is.

Prototype. Called through ctypes: libcupti is in every CUDA toolkit and comes with PyTorch (nvidia-cuda-cupti);
`cupti-python` is not used: it makes a Python object of every record, within CUPTI's callback, is tied to
one minor version of CUPTI, and has a licence of its own. The offsets below are those of NVIDIA's headers of
12.8, 13.0 and 13.5 alike (`layout_check.c`).

Invariants: a record is decoded after the capture, never in a callback; times in the file are CUPTI's, those of
the host are brought to its clock by two readings; what CUPTI dropped is said.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# --- CUPTI's numbers and records -----------------------------------------------------------------

MEMCPY, MEMSET, DRIVER, RUNTIME, DEVICE, CONCURRENT_KERNEL = 1, 2, 4, 5, 8, 10
MARKER, SYNC, EXTERNAL, GRAPH_TRACE = 12, 38, 39, 51
DOMAIN_DRIVER, DOMAIN_RUNTIME, DOMAIN_RESOURCE = 1, 2, 3
NODE_CREATED, NODE_CLONED = 13, 20
SYSTEM_THREAD = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM: gettid(), as Python and nsys have it
CUSTOM = 3  # CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
NONE_64 = 2**64 - 1


def _record(size: int, **fields: tuple[str, int]) -> np.dtype:
    """A record of which these fields, given as (format, offset), are read."""
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype(
        {
            "names": list(fields),
            "formats": list(formats),
            "offsets": list(offsets),
            "itemsize": size,
        }
    )


RECORDS = {  # sizes reach as far as what is read: later versions append
    CONCURRENT_KERNEL: _record(
        160, registers=("u2", 6), start=("u8", 16), end=("u8", 24), device=("u4", 40), context=("u4", 44),
        stream=("u4", 48), grid_x=("i4", 52), grid_y=("i4", 56), grid_z=("i4", 60), block_x=("i4", 64),
        block_y=("i4", 68), block_z=("i4", 72), shared_static=("i4", 76), shared_dynamic=("i4", 80),
        correlation=("u4", 92), name=("u8", 104), graph_node=("u8", 144), graph=("u4", 156),
    ),
    MEMCPY: _record(
        76, copy_kind=("u1", 4), source_kind=("u1", 5), target_kind=("u1", 6), bytes=("u8", 8), start=("u8", 16),
        end=("u8", 24), device=("u4", 32), context=("u4", 36), stream=("u4", 40), correlation=("u4", 44),
        graph_node=("u8", 64),
    ),
    MEMSET: _record(
        76, bytes=("u8", 8), start=("u8", 16), end=("u8", 24), device=("u4", 32), context=("u4", 36),
        stream=("u4", 40), correlation=("u4", 44), target_kind=("u2", 50), graph_node=("u8", 64),
    ),
    DRIVER: _record(
        40, cbid=("u4", 4), start=("u8", 8), end=("u8", 16), pid=("u4", 24), thread=("u4", 28),
        correlation=("u4", 32),
    ),
    SYNC: _record(
        40, kind=("u4", 4), start=("u8", 8), end=("u8", 16), correlation=("u4", 24), context=("u4", 28),
        stream=("u4", 32), event=("u4", 36),
    ),
    GRAPH_TRACE: _record(
        40, correlation=("u4", 4), start=("u8", 8), end=("u8", 16), device=("u4", 24), graph=("u4", 28),
        context=("u4", 32), stream=("u4", 36),
    ),
    EXTERNAL: _record(24, kind=("u4", 4), id=("u8", 8), correlation=("u4", 16)),
    DEVICE: _record(
        144, memory_bandwidth=("u8", 8), memory_bytes=("u8", 16), l2_bytes=("u4", 28), warp_size=("u4", 32),
        clock_khz=("u4", 36), sm_count=("u4", 44), warps_per_sm=("u4", 52), compute_major=("u4", 104),
        compute_minor=("u4", 108), gpu=("u4", 112), name=("u8", 136),
    ),
}  # fmt: skip
RECORDS[RUNTIME] = RECORDS[DRIVER]
TABLES = {
    CONCURRENT_KERNEL: "kernels",
    MEMCPY: "copies",
    MEMSET: "fills",
    SYNC: "syncs",
    GRAPH_TRACE: "graphs",
}


class Problem(RuntimeError):
    """CUPTI cannot do what is wanted; the message names the call."""


_REQUEST = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class _ResourceData(ctypes.Structure):
    _fields_ = [
        ("context", ctypes.c_void_p),
        ("resource", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


class _GraphData(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p) for name in ("graph", "original_graph", "node", "original_node")
    ] + [("node_type", ctypes.c_int), ("dependency", ctypes.c_void_p), ("exec", ctypes.c_void_p)]


class Cupti:
    """libcupti: calls that are checked, buffers that are kept until they are decoded."""

    SIZE = 8 << 20  # of a buffer: NVIDIA's samples and PyTorch take 4 to 8 MiB

    def __init__(self, path: str | None = None) -> None:
        self.lib = ctypes.CDLL(
            path or library()
        )  # CDLL lets go of the GIL: callbacks may run meanwhile
        self.buffers: list[tuple[int, int]] = []  # address and valid bytes of what CUPTI has filled
        self.nodes: list[tuple[int, int, int, int]] = []  # time, thread, node, original or NONE_64
        self.dropped = 0
        self._memory: dict[int, Any] = {}
        self._requested, self._completed = _REQUEST(self._request), _COMPLETE(self._complete)
        self._called = _CALLBACK(self._callback)
        self._subscriber = ctypes.c_void_p()

    def ask(self, name: str, *arguments: Any) -> None:
        """Call it; raise `Problem` with CUPTI's own words."""
        status = getattr(self.lib, name)(*arguments)
        if status:
            said = ctypes.c_char_p()
            self.lib.cuptiGetResultString(status, ctypes.byref(said))
            raise Problem(f"{name}: {(said.value or b'?').decode()} ({status})")

    def now(self) -> int:
        """Return CUPTI's time, ns."""
        at = ctypes.c_uint64()
        self.ask("cuptiGetTimestamp", ctypes.byref(at))
        return at.value

    def start(self, kinds: tuple[int, ...]) -> list[str]:
        """Record these kinds from now on; return what could not be had."""
        self.ask("cuptiSetThreadIdType", SYSTEM_THREAD)
        self.ask("cuptiActivityRegisterCallbacks", self._requested, self._completed)
        missing = []
        for kind in kinds:
            try:
                self.ask("cuptiActivityEnable", ctypes.c_uint32(kind))
            except Problem as problem:
                missing.append(f"kind {kind}: {problem}")
        try:  # where nodes of graphs are made is told by callbacks alone; one subscriber is allowed per process
            self.ask("cuptiSubscribe", ctypes.byref(self._subscriber), self._called, None)
            for event in (NODE_CREATED, NODE_CLONED):
                self.ask("cuptiEnableCallback", 1, self._subscriber, DOMAIN_RESOURCE, event)
        except Problem as problem:
            missing.append(f"nodes of graphs: {problem}")
        return missing

    def stop(self, kinds: tuple[int, ...]) -> None:
        """Record no more; all buffers are with us afterwards."""
        for kind in kinds:
            self.lib.cuptiActivityDisable(ctypes.c_uint32(kind))
        if self._subscriber:
            self.lib.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()
        self.ask("cuptiActivityFlushAll", ctypes.c_uint32(FORCED))

    def call_name(self, domain: int, cbid: int) -> str:
        """Return what CUPTI calls a CUDA function."""
        said = ctypes.c_char_p()
        self.ask("cuptiGetCallbackName", domain, ctypes.c_uint32(cbid), ctypes.byref(said))
        return (said.value or b"?").decode()

    def records(self) -> dict[int, np.ndarray]:
        """Return all records by kind; CUPTI itself says where each begins."""
        found: dict[int, list[np.ndarray]] = {}
        following = self.lib.cuptiActivityGetNextRecord
        for address, valid in self.buffers:
            raw = np.frombuffer((ctypes.c_uint8 * valid).from_address(address), np.uint8)
            base, size, at = ctypes.c_void_p(address), ctypes.c_size_t(valid), ctypes.c_void_p(None)
            begins, reference = [], ctypes.byref(at)
            while following(base, size, reference) == 0:
                begins.append(at.value - address)  # type: ignore[operator]
            starts = np.array(begins, np.int64)
            kinds = (
                raw[starts[:, None] + np.arange(4)].view(np.uint32)[:, 0] if len(starts) else starts
            )
            for kind in np.unique(kinds).tolist():
                layout = RECORDS.get(kind)
                if layout is not None:
                    taken = starts[kinds == kind]
                    whole = raw[taken[:, None] + np.arange(layout.itemsize)]
                    found.setdefault(kind, []).append(
                        np.ascontiguousarray(whole).view(layout)[:, 0]
                    )
        return {kind: np.concatenate(parts) for kind, parts in found.items()}

    def _request(self, buffer: Any, size: Any, records: Any) -> None:
        made = (ctypes.c_uint64 * (self.SIZE // 8))()  # aligned to 8, as CUPTI demands
        address = ctypes.addressof(made)
        self._memory[address] = made
        buffer[0], size[0], records[0] = address, self.SIZE, 0

    def _complete(self, _context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
        dropped = ctypes.c_size_t()
        self.lib.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped))
        self.dropped += dropped.value
        if valid:
            self.buffers.append((buffer, valid))
        else:
            self._memory.pop(buffer, None)

    def _callback(self, _user: Any, _domain: int, event: int, data: int) -> None:
        told = _GraphData.from_address(_ResourceData.from_address(data).data)
        node, original = ctypes.c_uint64(), ctypes.c_uint64(NONE_64)
        self.lib.cuptiGetGraphNodeId(ctypes.c_void_p(told.node), ctypes.byref(node))
        if event == NODE_CLONED:
            self.lib.cuptiGetGraphNodeId(
                ctypes.c_void_p(told.original_node), ctypes.byref(original)
            )
        self.nodes.append((self.now(), _thread(), node.value, original.value))


def library() -> str:
    """Return the libcupti that fits: $BRIDGE_LIBCUPTI, the one loaded (PyTorch's), the wheel's, the toolkit's."""
    if asked := os.environ.get("BRIDGE_LIBCUPTI"):
        return asked
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "/libcupti.so" in line:
            return line.split(maxsplit=5)[
                -1
            ]  # two copies in one process would each refuse the other
    for folder in map(Path, sys.path):
        for pattern in (
            "nvidia/cu*/lib/libcupti.so.1[2-9]",
            "nvidia/cuda_cupti/lib/libcupti.so.12",
        ):
            if found := sorted(folder.glob(pattern)):
                return str(found[-1])
    for pattern in ("cuda*/extras/CUPTI/lib64/libcupti.so", "cuda*/lib64/libcupti.so"):
        if found := sorted(Path("/usr/local").glob(pattern)):
            return str(found[-1])
    return "libcupti.so"


# --- what the program annotates ------------------------------------------------------------------


class Kept:
    """What `bridge.annotate.recording.recorder.Recorder` asks of a writer; rows stay here."""

    due = 1 << 62

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.full: list[list[Any]] = []
        self.marks: list[Any] = []
        self.threads: dict[int, str] = {}
        self.open: Any = list
        self.forked: Any = list

    def flush(self, *, wait: bool = True) -> None:
        full, self.rows = (
            self.rows,
            [],
        )  # another thread may still append to the old list: it is kept whole
        self.full.append(full)

    def row(self, row: Any) -> None:
        self.rows.append(row)

    def mark(self, mark: Any) -> None:
        self.marks.append(mark)

    def thread(self, number: int, name: str) -> None:
        self.threads[number] = name

    def all(self) -> list[Any]:
        return [row for part in (*self.full, self.rows) for row in part]


def _recorder(kept: Kept, cupti: Cupti | None) -> Any:
    """Return bridge's own recorder; with ``cupti`` it also tells CUPTI which range is open, call by call."""
    from bridge.annotate.recording.recorder import Recorder

    if cupti is None:
        return Recorder(kept)
    push_id = cupti.lib.cuptiActivityPushExternalCorrelationId
    pop_id = cupti.lib.cuptiActivityPopExternalCorrelationId
    kind, ids = ctypes.c_uint32(CUSTOM), iter(range(1, 1 << 62))

    class Telling(Recorder):
        """The exact witness: CUPTI itself notes with each call which range was innermost, whatever the clocks say."""

        told: dict[int, str] = {}

        def push(self, label: Any, payload: float) -> None:
            number = next(ids)
            self.told[number] = label.name
            super().push(label, payload)
            push_id(kind, ctypes.c_uint64(number))

        def pop(self, domain: str | None) -> None:
            last = ctypes.c_uint64()
            pop_id(kind, ctypes.byref(last))
            super().pop(domain)

    return Telling(kept)


# --- a capture -----------------------------------------------------------------------------------


class Clock(NamedTuple):
    """One moment by two clocks, and how far apart they may be, ns."""

    cupti: int
    host: int
    slack: int


class Capture:
    """Everything from `start` to `stop`, or of a with-block; ``graphs`` is "node" or "graph", as nsys has it.

    With ``exact`` CUPTI notes the innermost range with each call: `disagreements` then counts the calls whose
    op by time is another.
    """

    def __init__(
        self, path: str | Path, *, graphs: str = "node", exact: bool = False, driver: bool = True
    ) -> None:
        self.path, self.exact = Path(path), exact
        trace = (GRAPH_TRACE,) if graphs == "graph" else ()
        calls = (RUNTIME, DRIVER) if driver else (RUNTIME,)
        extra = (EXTERNAL,) if exact else ()
        self.kinds = (DEVICE, CONCURRENT_KERNEL, MEMCPY, MEMSET, SYNC, *calls, *trace, *extra)
        self.missing: list[str] = []
        self.disagreements: list[str] = []
        self.cupti: Any = None

    def start(self) -> None:
        """Start; call it before CUDA is used, or what was launched before is not known."""
        from bridge.annotate import emit

        self.cupti = Cupti()
        self.missing = self.cupti.start(self.kinds)
        self.clocks = [self._clock()]
        self.kept = Kept()
        self.recorder = _recorder(self.kept, self.cupti if self.exact else None)
        self._before = emit.state.emitter, emit.state.reason
        emit.use(self.recorder, "bridge records by CUPTI")

    def stop(self) -> Path:
        """Stop, decode, write; return the file."""
        from bridge.annotate import emit

        emit.use(*self._before)
        _wait_for_gpu()
        self.cupti.stop(self.kinds)
        self.clocks.append(self._clock())
        self.recorder.finish()
        self._write()
        return self.path

    def __enter__(self) -> Capture:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _clock(self) -> Clock:
        """Read both clocks; of many readings the closest."""

        def read() -> Clock:
            before = time.monotonic_ns()
            at = self.cupti.now()
            after = time.monotonic_ns()
            return Clock(at, (before + after) // 2, (after - before + 1) // 2)

        return min((read() for _ in range(200)), key=lambda clock: clock.slack)

    def _to_cupti(self, host: np.ndarray) -> np.ndarray:
        """Bring times of the host to CUPTI's clock, which may drift against it."""
        first, last = self.clocks
        offset, drift = (
            first.cupti - first.host,
            (last.cupti - last.host) - (first.cupti - first.host),
        )
        since = (host - first.host).astype(np.float64)
        return (
            host + offset + np.rint(drift * since / max(1, last.host - first.host)).astype(np.int64)
        )

    def _write(self) -> None:
        from importers.nsys import schema
        from importers.nsys.export import Strings, write_export

        found = self.cupti.records()
        origin = self.clocks[0].cupti  # times in an export begin near 0
        strings, tables = Strings(), {}
        pid = os.getpid()
        process = pid << 24
        for kind, name in TABLES.items():
            if kind in found:
                tables[name] = self._activities(kind, found[kind], origin, process, strings)
        tables["launches"] = list(self._calls(found, origin, process, strings))
        tables["annotations"] = list(self._ranges(origin, process, strings))
        tables["graph_nodes"] = [
            {
                "time": at - origin,
                "thread": process | thread,
                "node": node,
                **({} if of == NONE_64 else {"original": of}),
            }
            for at, thread, node, of in self.cupti.nodes
        ]
        tables["threads"] = [
            {"thread": process | thread, "name": strings(name)}
            for thread, name in self.kept.threads.items()
        ]
        tables["processes"] = [{"process": process, "name": Path(sys.argv[0]).name or "python"}]
        tables["gpus"] = [_gpu(row) for row in found.get(DEVICE, ())]
        tables["devices"] = [
            {"gpu": row["gpu"], "device": row["device"], "pid": pid} for row in tables["gpus"]
        ]
        tables["session"] = [{"duration": self.clocks[1].cupti - origin}]
        tables["epoch"] = [{"epoch": time.time_ns() - (self.cupti.now() - origin)}]
        said = [
            *self.missing,
            *([f"CUPTI dropped {self.cupti.dropped} records"] if self.cupti.dropped else []),
        ]
        tables["diagnostics"] = [
            {"time": 0, "process": process, "source": 2, "severity": 2, "text": line}
            for line in said
        ]
        kept = {name: rows for name, rows in tables.items() if rows}
        versions = {schema.PRODUCT_VERSION: "bridge by CUPTI", schema.SCHEMA_VERSION: "3.20.0"}
        self.path.unlink(missing_ok=True)
        write_export(self.path, {**kept, "strings": strings.rows()}, versions)
        if self.exact:
            self._compare(found, tables)

    def _activities(
        self, kind: int, rows: np.ndarray, origin: int, process: int, strings: Any
    ) -> list[dict[str, Any]]:
        made = []
        named: dict[int, tuple[int, int, int]] = {}
        names = rows.dtype.names
        for values in rows.tolist():
            row = dict(zip(names, values, strict=True))
            row["start"], row["end"] = row["start"] - origin, row["end"] - origin
            row["process"] = process
            for optional in ("graph_node", "graph"):
                if row.get(optional) == 0:
                    del row[optional]
            if kind == CONCURRENT_KERNEL:
                pointer = row.pop("name")
                if pointer not in named:
                    mangled = ctypes.string_at(pointer).decode(errors="replace") if pointer else "?"
                    full = _demangled(mangled)
                    named[pointer] = strings(_short(full)), strings(full), strings(mangled)
                row["name"], row["full_name"], row["mangled"] = named[pointer]
            made.append(row)
        return made

    def _calls(self, found: dict[int, np.ndarray], origin: int, process: int, strings: Any) -> Any:
        """Calls of the runtime; those of the driver that are not within one of the runtime with the same number."""
        outer = set(found[RUNTIME]["correlation"].tolist()) if RUNTIME in found else set()
        for kind, domain in ((RUNTIME, DOMAIN_RUNTIME), (DRIVER, DOMAIN_DRIVER)):
            names: dict[int, int] = {}
            for cbid, start, end, _, thread, correlation in (
                found[kind].tolist() if kind in found else ()
            ):
                if kind == DRIVER and correlation in outer:
                    continue
                if cbid not in names:
                    names[cbid] = strings(self.cupti.call_name(domain, cbid))
                yield {
                    "start": start - origin, "end": end - origin, "thread": process | thread,
                    "correlation": correlation, "name": names[cbid],
                }  # fmt: skip

    def _ranges(self, origin: int, process: int, strings: Any) -> Any:
        """Ranges and marks of the recorder, on CUPTI's clock; a domain is named by a row of its own."""
        domains: dict[str, int] = {}
        rows = self.kept.all()
        starts = self._to_cupti(np.array([row.start for row in rows], np.int64))
        ends = self._to_cupti(np.array([row.end for row in rows], np.int64))
        for row, start, end in zip(rows, starts.tolist(), ends.tolist(), strict=True):
            type_ = 59 if row.kind == 0 else 60
            made = {
                "type": type_,
                "start": start - origin,
                "thread": process | row.thread,
                "text_id": strings(row.label.name),
            }
            if row.end >= 0:
                made["end"] = end - origin
            if row.payload:
                made["payload"] = row.payload
            if row.label.domain is not None:
                made["domain"] = domains.setdefault(row.label.domain, len(domains) + 1)
            yield made
        for name, number in domains.items():
            yield {
                "type": 75,
                "start": 0,
                "domain": number,
                "text_id": strings(name),
                "thread": process,
            }

    def _compare(self, found: dict[int, np.ndarray], tables: dict[str, Any]) -> None:
        """Compare the op by time with what CUPTI noted itself."""
        told = {int(row["correlation"]): int(row["id"]) for row in found.get(EXTERNAL, ())}
        spans: dict[int, list[tuple[int, int, str]]] = {}
        for row in self.kept.all():
            if row.kind == 0:
                spans.setdefault(row.thread, []).append((row.start, row.end, row.label.name))
        origin, thread_bits = self.clocks[0].cupti, (1 << 24) - 1
        for thread, rows in spans.items():
            times = (
                self._to_cupti(np.array([row[:2] for row in rows], np.int64).reshape(-1, 2))
                - origin
            )
            spans[thread] = [
                (int(s), int(e), name) for (s, e), (_, _, name) in zip(times, rows, strict=True)
            ]
        for call in tables["launches"]:
            holding = [
                (end - start, name) for start, end, name in spans.get(call["thread"] & thread_bits, ())
                if start <= call["start"] and call["end"] <= end
            ]  # fmt: skip
            by_time = min(holding)[1] if holding else None
            by_cupti = self.recorder.told.get(told.get(call["correlation"], 0))
            if call["correlation"] in told and by_time != by_cupti:
                self.disagreements.append(
                    f"call {call['correlation']}: by time {by_time}, by CUPTI {by_cupti}"
                )


def _gpu(row: Any) -> dict[str, Any]:
    number = int(row["gpu"])
    whole = {
        name: int(row[name]) for name in row.dtype.names if name not in ("name", "gpu", "clock_khz")
    }
    return {
        **whole, "gpu": number, "device": number, "clock_hz": int(row["clock_khz"]) * 1000,
        "memory_bandwidth": int(row["memory_bandwidth"]) * 1000,  # kB/s
        "name": ctypes.string_at(int(row["name"])).decode(errors="replace") if row["name"] else "GPU",
    }  # fmt: skip


def _wait_for_gpu() -> None:
    """Wait for what was launched: CUPTI hands out finished activities only."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        driver.cuCtxSynchronize()
    except OSError:  # the program has not used CUDA
        pass


def _thread() -> int:
    from threading import get_native_id

    return get_native_id()


def _demangled(name: str) -> str:
    """Return what a C++ name says, by the C++ library that CUDA programs have anyway."""
    if not name.startswith("_Z"):
        return name
    try:
        demangle = ctypes.CDLL(
            "libstdc++.so.6"
        ).__cxa_demangle  # names it: no mangling by the class
    except (OSError, AttributeError):
        return name
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    made = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not made:
        return name
    text = ctypes.string_at(made).decode()
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free(made)
    return text


def _short(full: str) -> str:
    """Return a name without result, namespaces, template arguments and parameters, as nsys shortens it."""
    depth, plain = 0, []
    for letter in full.replace("(anonymous namespace)", "_anonymous_"):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0:
            if letter == "(":
                break
            plain.append(letter)
    return "".join(plain).split("::")[-1].split(" ")[-1] or full


def main() -> None:
    """Run a program under a capture."""
    path, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    capture = Capture(
        path, graphs=os.environ.get("KIT_GRAPHS", "node"), exact=os.environ.get("KIT_EXACT") == "1"
    )
    capture.start()
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        began = time.perf_counter()
        capture.stop()
        taken = time.perf_counter() - began
        print(
            f"cupti: {len(capture.cupti.buffers)} buffers, dropped {capture.cupti.dropped}, clock slack "
            f"{max(c.slack for c in capture.clocks)} ns, written in {taken:.2f} s; missing {capture.missing}; "
            f"exact witness disagrees on {len(capture.disagreements)} calls {capture.disagreements[:3]}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
