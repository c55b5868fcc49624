"""Collection of activity records: buffers for CUPTI, and a thread that decodes them into the spool.

Inside a callback nothing is decoded: a buffer is handed out, or put into a queue. At most `MOST_BUFFERS` are in use; if
the thread falls behind that far, CUPTI gets none, drops records and counts them.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread, get_native_id
from typing import TYPE_CHECKING, Any

from bridge.capture.cupti import records
from bridge.capture.cupti.library import (
    BufferCompleted,
    Callback,
    CuptiError,
    Library,
    RequestBuffer,
)
from bridge.capture.cupti.spool import NODES, WITNESS, Spool

if TYPE_CHECKING:
    import numpy as np

BUFFER_BYTES = 8 << 20
MOST_BUFFERS = 64  # 512 MiB
FLUSH_MS = 200  # CUPTI hands over what is complete at this interval, so that a kill loses no more
CLOCK_S = 1.0  # interval of readings of both clocks
READINGS = 50  # per clock pair, of which the closest counts

DOMAINS = DRIVER_API, RUNTIME_API, RESOURCE = 1, 2, 3
CONTEXT_CREATED, NODE_CREATED, NODE_CLONED = 1, 13, 20  # callbacks of the resource domain
SYSTEM_THREAD_IDS = 1  # gettid(), as Python and nsys have it
FORCED = 1  # flush incomplete buffers as well
NO_ORIGINAL = -1
CALL_DOMAINS = {records.DRIVER: DRIVER_API, records.RUNTIME: RUNTIME_API}
NAMED = (records.KERNEL, records.DEVICE)  # kinds whose records point to a name

Listener = Callable[[int, Any], None]


class _ResourceData(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("resource", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    )


class _GraphData(ctypes.Structure):
    _fields_ = (
        ("graph", ctypes.c_void_p),
        ("original_graph", ctypes.c_void_p),
        ("node", ctypes.c_void_p),
        ("original_node", ctypes.c_void_p),
    )


class Collector:
    """Records kinds of activities from `start` to `stop`; `pause` and `resume` in between."""

    def __init__(self, library: Library, spool: Callable[[], Spool], kinds: Sequence[int]) -> None:
        self.library = library
        self.kinds = tuple(kinds)
        self.listener: Listener | None = None  # gets each array of records after it was written
        self.record_count = self.buffer_count = 0
        self._make_spool = spool
        self._subscriber = ctypes.c_void_p()
        # CUPTI calls these for as long as the process lives.
        self._callbacks = RequestBuffer(self._request), BufferCompleted(self._complete)
        self._resource_callback = Callback(self._resource_event)
        self._memory: dict[int, Any] = {}  # buffers by address
        self._free: list[int] = []
        self._used_gpu = False
        self._is_dead = False
        self._reset()

    def _reset(self) -> None:
        self._completed: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._nodes: list[tuple[int, int, int, int]] = []
        self.witness: list[tuple[int, int, int]] = []  # ids of ranges, as `spool.WITNESS_FIELDS`
        self._drops: list[int] = []
        self._names: set[int] = set()  # pointers whose names are in the spool
        self._call_names: set[tuple[int, int]] = set()
        self._decoder = records.Decoder(self.library)
        self._thread: Thread | None = None
        self._spool: Spool | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Subscribe and record; raises CuptiError if CUPTI refuses, OSError without space."""
        library = self.library
        library.call(
            "cuptiSubscribe", ctypes.byref(self._subscriber), self._resource_callback, None
        )
        try:
            library.call("cuptiSetThreadIdType", SYSTEM_THREAD_IDS)
            library.call("cuptiActivityRegisterCallbacks", *self._callbacks)
            self._begin()
            self.resume()
        except BaseException:
            self._abandon()
            raise
        for event in (CONTEXT_CREATED, NODE_CREATED, NODE_CLONED):
            library.call("cuptiEnableCallback", 1, self._subscriber, RESOURCE, event)
        with suppress(CuptiError, AttributeError):
            library.call("cuptiActivityFlushPeriod", ctypes.c_uint32(FLUSH_MS))

    def _begin(self) -> None:
        """Create the spool and the thread, in this process or in a forked child."""
        self._spool = self._make_spool()
        self._spool.begin(self.library.version, str(self.library.path))
        self._spool.note({"clocks": [self.clock_pair()]})
        self._thread = Thread(target=self._decode, name="bridge CUPTI", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Record; raises CuptiError if kernels cannot be recorded. Other kinds that are refused are noted."""
        missing = []
        for kind in self.kinds:
            try:
                self.library.call("cuptiActivityEnable", ctypes.c_uint32(kind))
            except CuptiError as error:
                if kind == records.KERNEL:
                    raise
                missing.append(f"activity kind {kind}: {error}")
        if missing and self._spool is not None:
            self._spool.note({"missing": missing})

    def pause(self) -> None:
        """Stop recording until `resume`; what was recorded is handed over."""
        if self._is_dead:
            return
        for kind in self.kinds:
            self.library.functions.cuptiActivityDisable(ctypes.c_uint32(kind))
        self.flush()

    def flush(self) -> None:
        """Have CUPTI hand over all records; those of running kernels follow later."""
        self.library.call("cuptiActivityFlushAll", ctypes.c_uint32(FORCED))

    def stop(self) -> None:
        """Stop, and write what was recorded."""
        if self._is_dead:
            return
        with suppress(CuptiError):
            self.pause()
        self._unsubscribe()
        self._completed.put(None)
        if self._thread is not None:
            self._thread.join()

    def _abandon(self) -> None:
        """Leave nothing of a start that failed."""
        self._unsubscribe()
        self._completed.put(None)
        if self._thread is not None:
            self._thread.join()
        if self._spool is not None:
            self._spool.remove()

    def _unsubscribe(self) -> None:
        if self._subscriber:
            self.library.functions.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()

    def in_child(self) -> None:
        """Start anew in a forked child, whose spool and thread begin with its first buffer.

        CUPTI may have a buffer of the parent, whose memory the child has a copy of. A child of a process that has used
        the GPU cannot use it, and leaves CUPTI alone.
        """
        self._is_dead = self._used_gpu
        self._reset()

    def clock_pair(self) -> tuple[int, int, int, int]:
        """Return CUPTI's, the monotonic and the epoch time of one moment, and how far apart they may be, ns."""

        def read() -> tuple[int, int, int, int]:
            before = time.monotonic_ns()
            cupti = self.library.timestamp()
            after = time.monotonic_ns()
            return cupti, (before + after) // 2, time.time_ns(), (after - before + 1) // 2

        return min((read() for _ in range(READINGS)), key=lambda pair: pair[-1])

    # -- CUPTI's callbacks: in any thread, with the GIL

    def _request(self, buffer: Any, size: Any, record_limit: Any) -> None:
        record_limit[0] = 0
        try:
            address = self._free.pop()
        except IndexError:
            if len(self._memory) >= MOST_BUFFERS:
                buffer[0], size[0] = None, 0
                return
            made = (ctypes.c_uint64 * (BUFFER_BYTES // 8))()
            address = ctypes.addressof(made)
            self._memory[address] = made
        buffer[0], size[0] = address, BUFFER_BYTES

    def _complete(self, context: Any, stream: int, buffer: int, _size: int, valid: int) -> None:
        dropped = ctypes.c_size_t()
        self.library.functions.cuptiActivityGetNumDroppedRecords(
            ctypes.c_void_p(context), ctypes.c_uint32(stream), ctypes.byref(dropped)
        )
        if dropped.value:
            self._drops.append(dropped.value)
        if self._spool is None:
            with suppress(OSError):
                self._begin()
        if buffer in self._memory:
            self._completed.put((buffer, valid))

    def _resource_event(self, _user: Any, _domain: int, event: int, data: int) -> None:
        if event == CONTEXT_CREATED:
            self._used_gpu = True
            return
        graph = _GraphData.from_address(_ResourceData.from_address(data).data)
        node = self.library.graph_node(graph.node)
        original = (
            self.library.graph_node(graph.original_node) if event == NODE_CLONED else NO_ORIGINAL
        )
        self._nodes.append((self.library.timestamp(), get_native_id(), node, original))

    # -- The thread

    def _decode(self) -> None:
        completed, clock_due = self._completed, time.monotonic() + CLOCK_S
        is_open = True
        while is_open:
            try:
                item = completed.get(timeout=CLOCK_S)
            except Empty:
                item = (0, 0)
            is_open = item is not None
            if item and item[0]:
                self._write(*item)
            self._write_rows()
            if not is_open or time.monotonic() > clock_due:
                clock_due = time.monotonic() + CLOCK_S
                self._note(is_open=is_open)

    def _write(self, address: int, valid: int) -> None:
        """Decode a buffer into the spool, and give it back."""
        self.buffer_count += 1
        try:
            for kind, rows in self._decoder.split(address, valid).items():
                self._note_names(kind, rows)
                self._file.add(kind, rows)
                self.record_count += len(rows)
                if self.listener is not None:
                    self.listener(kind, rows)
        except Exception as error:  # noqa: BLE001 - recording must not make the program fail
            self._fail(error)
        self._free.append(address)

    def _note(self, *, is_open: bool) -> None:
        """Write a pair of clocks, and what was counted since the last one."""
        fact: dict[str, Any] = {"clocks": [self.clock_pair()]}
        if drops := _take(self._drops):
            fact["dropped"] = sum(drops)
        if not is_open:
            fact["stopped"] = True
        try:
            self._file.note(fact)
        except OSError as error:
            self._fail(error)

    def _write_rows(self) -> None:
        """Write which nodes of graphs and which ranges came since the last time."""
        for name, rows in ((NODES, self._nodes), (WITNESS, self.witness)):
            if taken := _take(rows):
                try:
                    self._file.add_rows(name, taken)
                except OSError as error:
                    self._fail(error)

    def _note_names(self, kind: int, rows: np.ndarray) -> None:
        """Write the names that records point to, and those of CUDA functions, each once."""
        if kind in NAMED:
            pointers = set(rows["name"].tolist()) - self._names - {0}
            if pointers:
                self._names |= pointers
                texts = {p: ctypes.string_at(p).decode(errors="replace") for p in pointers}
                self._file.note({"names": texts})
        elif kind in CALL_DOMAINS:
            domain = CALL_DOMAINS[kind]
            calls = {(domain, number) for number in set(rows["cbid"].tolist())} - self._call_names
            if calls:
                self._call_names |= calls
                names = [(*call, self.library.call_name(*call)) for call in sorted(calls)]
                self._file.note({"calls": names})

    @property
    def _file(self) -> Spool:
        if self._spool is None:
            raise OSError("no spool")
        return self._spool

    def _fail(self, error: Exception) -> None:
        """Record no more: a full disk must not make the program fail."""
        from bridge.annotate.emitter import warn

        for kind in self.kinds:
            self.library.functions.cuptiActivityDisable(ctypes.c_uint32(kind))
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        warn(f"{self._spool and self._spool.folder}: {reason}; CUPTI records no more")


def _take(items: list[Any]) -> list[Any]:
    """Remove and return the items of a list to which other threads append."""
    taken = items[:]
    del items[: len(taken)]
    return taken
