"""Collection of activity records: CUPTI is told what to record, and a thread decodes its buffers into the spool.

If the thread falls behind by all buffers, CUPTI gets none, drops records and counts them.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, RLock, Thread
from typing import TYPE_CHECKING, Any

from bridge.annotate.emitter import EXIT_S, warn
from bridge.capture.cupti import driver, records
from bridge.capture.cupti.callbacks import callbacks
from bridge.capture.cupti.library import CuptiError, Library
from bridge.capture.cupti.names import Texts
from bridge.capture.cupti.spool import NODES, WITNESS, Spool

if TYPE_CHECKING:
    import numpy as np

FLUSH_MS = 200  # CUPTI hands over what is complete at this interval, so that a kill loses no more
POLL_S = 0.02  # interval at which the thread looks for buffers
WATCH_S = 0.2  # interval at which a forked child looks whether it uses the GPU
CLOCK_S = 1.0  # interval of readings of both clocks
READINGS = 50  # per pair of clocks; the closest one counts

DOMAINS = DRIVER_API, RUNTIME_API, RESOURCE = 1, 2, 3
# Context created and destroyed; module unloaded; node of a graph created and cloned.
RESOURCE_EVENTS = (1, 2, 7, 13, 20)
SYSTEM_THREAD_IDS = 1  # gettid(), as Python and nsys have it
FORCED = 1  # flush incomplete buffers as well
NO_ORIGINAL = -1
CALL_DOMAINS = {records.DRIVER: DRIVER_API, records.RUNTIME: RUNTIME_API}
NAMED = (records.KERNEL, records.DEVICE)  # kinds whose records point to a name
LASTING = (records.DEVICE, records.CONTEXT)  # written once per device and context: never paused
WAITED = (records.DRIVER, records.SYNCHRONIZATION)  # kinds of records that our own wait makes
KEPT_IDS = 10_000  # of a forked child that may use the GPU later on


class _Helper(Thread):
    """A thread that runs one function later on: from Python 3.12 on none can be started when the program ends."""

    def __init__(self) -> None:
        super().__init__(name="bridge CUPTI wait", daemon=True)
        self._given = Event()
        self._function: Callable[[], object] | None = None
        self.start()

    def run(self) -> None:
        self._given.wait()
        if self._function is not None:
            self._function()

    def ends(self, function: Callable[[], object] | None) -> bool:
        """Return whether a function ends within `EXIT_S`; if not, it goes on and nobody waits for it."""
        self._function = function
        self._given.set()
        self.join(EXIT_S)
        return not self.is_alive()


class Collector:
    """Records kinds of activities from `start` to `stop`; `pause` and `resume` in between.

    ``flush_annotations`` is called in the thread when buffers come, so that a kill loses no more of the ranges.
    """

    def __init__(self, library: Library, spool: Callable[[], Spool], kinds: Sequence[int]) -> None:
        self.library = library
        self.kinds = tuple(kinds)
        self.flush_annotations: Callable[[], object] | None = None
        self.record_count = self.buffer_count = 0
        self._make_spool = spool
        self._callbacks = callbacks()
        self._subscriber = ctypes.c_void_p()
        self._used_gpu_before = (
            False  # before the capture began: CUPTI does not tell of those contexts
        )
        self._is_dead = False  # in a forked child that must not touch CUPTI
        self._parent_used_gpu = False
        self._left = False  # CUPTI, to another user
        self._enabled: set[int] = set()
        self._reset()

    def _reset(self) -> None:
        self.witness: list[tuple[int, int, int]] = []  # ids of ranges, as `spool.WITNESS_FIELDS`
        self._ended = Event()
        self._reviving = Lock()
        self._calls_before: int | None = None  # before a wait that has made records
        self._leaving = RLock()  # a signal's handler may stop what leaves
        self._texts = Texts()
        self._call_names: set[tuple[int, int]] = set()
        self._decoder = records.Decoder(self.library)
        self._thread: Thread | None = None
        self._helpers: list[_Helper] = []  # one for each wait at the end
        self._spool: Spool | None = None

    def start(self) -> None:
        """Subscribe and record; raises CuptiError if CUPTI refuses, OSError without space."""
        library, own = self.library, self._callbacks
        library.call("cuptiSubscribe", ctypes.byref(self._subscriber), own.event, None)
        try:
            own.begin(library)
            library.call("cuptiSetThreadIdType", SYSTEM_THREAD_IDS)
            library.call("cuptiActivityRegisterCallbacks", *own.buffers)
            for event in RESOURCE_EVENTS:
                library.call("cuptiEnableCallback", 1, self._subscriber, RESOURCE, event)
            self._begin()
            self._start_threads(self._decode)
            self._enable(self.kinds)
        except BaseException:
            self._abandon()
            raise
        self._set_flush_period(FLUSH_MS)
        loaded = driver.loaded_driver()
        self._used_gpu_before = loaded is not None and driver.has_active_context(loaded)

    def _begin(self) -> None:
        """Create the spool, in this process or in a forked child."""
        self._spool = self._make_spool()
        self._spool.begin(self.library.version, str(self.library.path))
        self._spool.note({"clocks": [self.clock_pair()]})

    def _start_threads(self, target: Callable[[], object]) -> None:
        """Start the thread that decodes, and those that are needed at the end."""
        self._helpers = [_Helper(), _Helper()]  # `wait` and `stop`
        self._thread = Thread(target=target, name="bridge CUPTI", daemon=True)
        self._thread.start()

    def _ends(self, function: Callable[[], object]) -> bool:
        """Have a helper run a function; return whether it ends within `EXIT_S`."""
        return (self._helpers or [_Helper()]).pop().ends(function)

    def resume(self) -> None:
        """Record; raises CuptiError if kernels cannot be recorded. Other kinds that are refused are noted."""
        if not (self._is_dead or self._left):
            self._enable([kind for kind in self.kinds if kind not in LASTING])

    def _enable(self, kinds: Sequence[int]) -> None:
        missing = []
        for kind in kinds:
            try:
                self.library.call("cuptiActivityEnable", ctypes.c_uint32(kind))
                self._enabled.add(kind)
            except CuptiError as error:
                if kind == records.KERNEL:
                    raise
                missing.append(f"activity kind {kind}: {error}")
        if missing and self._spool is not None:
            self._spool.note({"missing": missing})

    def pause(self) -> None:
        """Stop recording until `resume`; what was recorded is handed over."""
        if not (self._is_dead or self._left or self._is_taken_over()):
            self._disable([kind for kind in self.kinds if kind not in LASTING])
            self.flush()

    def _disable(self, kinds: Sequence[int]) -> None:
        for kind in kinds:
            self.library.functions.cuptiActivityDisable(ctypes.c_uint32(kind))
        self._enabled -= {*kinds}

    def flush(self) -> None:
        """Have CUPTI hand over all records."""
        with suppress(CuptiError):
            self.library.call("cuptiActivityFlushAll", ctypes.c_uint32(FORCED))

    def wait(self, *, is_limited: bool) -> None:
        """Wait for what the program has launched: CUPTI hands over finished activities only.

        ``is_limited``: for at most `EXIT_S`, as where the program ends.
        """
        if self._is_dead or self._left or not (self._used_gpu_before or self._callbacks.contexts):
            return
        if self._enabled.intersection(WAITED):
            self._calls_before = self._callbacks.calls
        current = driver.current_context()
        contexts = {*self._callbacks.contexts, *([current] if current else ())}
        if not is_limited:
            driver.wait(contexts)
        elif not self._ends(lambda: driver.wait(contexts)):
            self._calls_before = None  # there need be no complete record
            self._note_limit("the GPU was still at work")

    def stop(self) -> None:
        """Stop, and write what was recorded."""
        if not self.revive():
            self._end_helpers()
            self._ended.set()
            return
        if not self._leave():
            self._end_thread()
        elif self._end_thread():
            self._callbacks.release_memory()

    def _leave(self) -> bool:
        """Hand over all records and leave CUPTI, unless that is done; return whether it ends in time."""
        with self._leaving:
            if self._left or self._ends(self._hand_over):
                return True
            self._note_limit("CUPTI did not hand over its last records")
            return False

    def _hand_over(self) -> None:
        """Have CUPTI hand over all records, and leave it."""
        if self._is_taken_over():
            return
        self._disable(self.kinds)
        self._set_flush_period(0)
        self.flush()
        self._unsubscribe()

    def leave(self, user: str) -> None:
        """Leave CUPTI to another user who is about to start; called in the thread of the program that starts it."""
        with self._leaving:
            is_forbidden = not self.revive() and self._parent_used_gpu
            if self._left or self._ended.is_set() or is_forbidden:
                return
            self.wait(is_limited=True)
            self._leave()
            if not self._left:
                self._say_left(f"process {os.getpid()} left CUPTI to {user}")

    def _is_taken_over(self) -> bool:
        """Return whether another user has registered its callbacks, which then get the records of all.

        CUPTI does not tell. But the wait before has made records, and for these no callback of ours was called. Nothing
        of CUPTI's state is changed then, for it is the other's: only the subscription, which is ours, is given up.
        """
        before, self._calls_before = self._calls_before, None
        if before is None:
            return False
        self.flush()
        if self._callbacks.calls > before:
            return False
        self._unsubscribe()
        self._say_left(f"another user took CUPTI over in process {os.getpid()}")
        return True

    def _say_left(self, text: str) -> None:
        """Call CUPTI no more, and say that the rest is not recorded."""
        self._left = True
        text = f"{text}: the rest of its work on the GPU is lost"
        warn(text)
        if self._spool is not None:
            with suppress(OSError):
                self._spool.note({"missing": [text]})

    def _note_limit(self, what: str) -> None:
        """Say what was waited for in vain."""
        text = f"{what} after {EXIT_S:.0f} s: the rest of process {os.getpid()} is lost"
        warn(text)
        if self._spool is not None:
            with suppress(OSError):
                self._spool.note({"missing": [text]})

    def _abandon(self) -> None:
        """Leave nothing of a start that failed."""
        self._disable(self.kinds)
        self._unsubscribe()
        self._end_thread()
        if self._spool is not None:
            self._spool.remove()

    def _end_thread(self) -> bool:
        """End the thread that decodes, and helpers without work; return whether it has ended in time."""
        self._end_helpers()
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(EXIT_S)
        if self._thread.is_alive():
            self._note_limit("records were still being written")
        return not self._thread.is_alive()

    def _end_helpers(self) -> None:
        while self._helpers:
            self._helpers.pop().ends(None)

    def _set_flush_period(self, milliseconds: int) -> None:
        with suppress(CuptiError, AttributeError):
            self.library.call("cuptiActivityFlushPeriod", ctypes.c_uint32(milliseconds))

    def _unsubscribe(self) -> None:
        if self._subscriber:
            self.library.functions.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()

    def in_child(self) -> None:
        """Leave CUPTI alone in a forked child, unless the child uses the GPU; `revive` looks whether it does.

        A child of a process that has used the GPU cannot use it, and CUPTI's threads do not survive the fork.
        """
        self._parent_used_gpu = self._used_gpu_before or bool(self._callbacks.contexts)
        self._callbacks.forked()
        self._is_dead = True
        self._reset()
        if not (self._parent_used_gpu or self._left):
            self._start_threads(self._watch)

    def revive(self) -> bool:
        """Record what a forked child does on the GPU, if it has begun to; return whether that is so."""
        with self._reviving:
            if self._is_dead and not self._parent_used_gpu and self._callbacks.contexts:
                self._is_dead = False
                self._begin()
        return not self._is_dead

    def _watch(self) -> None:
        """Decode in a forked child once it uses the GPU; `stop` too may find that it does."""
        while not (self._ended.wait(WATCH_S) or self.revive()):
            del self.witness[:-KEPT_IDS]
        if not self._ended.is_set():
            self._set_flush_period(FLUSH_MS)  # CUPTI's own thread did not survive the fork
        if not self._is_dead:
            self._decode()

    @property
    def takes_ids(self) -> bool:
        """Whether CUPTI may be told which range is open: not once it is left, nor in a child that must not touch it."""
        return not (self._left or (self._is_dead and self._parent_used_gpu))

    def clock_pair(self) -> tuple[int, int, int, int]:
        """Return CUPTI's, the monotonic and the epoch time of one moment, and how far apart they may be, ns."""

        def read() -> tuple[int, int, int, int]:
            before = time.monotonic_ns()
            cupti = self.library.timestamp()
            after = time.monotonic_ns()
            return cupti, (before + after) // 2, time.time_ns(), (after - before + 1) // 2

        return min((read() for _ in range(READINGS)), key=lambda pair: pair[-1])

    # -- The thread

    def _decode(self) -> None:
        """Write what comes until the capture ends; recording must not make the program fail."""
        clock_due = time.monotonic() + CLOCK_S
        is_open = True
        try:
            while is_open:
                is_open = not self._ended.wait(POLL_S)
                self._write_buffers()
                if not is_open or time.monotonic() > clock_due:
                    clock_due = time.monotonic() + CLOCK_S
                    self._note(is_open=is_open)
        except Exception as error:  # noqa: BLE001 - see above
            self._fail(error)

    def _write_buffers(self) -> None:
        """Write the records of the buffers that CUPTI has filled, and what else came meanwhile."""
        taken = self._callbacks.take()
        if taken and self.flush_annotations is not None:
            self.flush_annotations()
        for address, valid in taken:
            self.buffer_count += 1
            for kind, rows in self._decoder.split(address, valid).items():
                self._note_names(kind, rows)
                self._file.add(kind, rows)
                self.record_count += len(rows)
            self._callbacks.give(address)
        if events := self._callbacks.take_events():
            self._file.add_integers(NODES, events)
        if noted := self.witness[:]:
            del self.witness[: len(noted)]
            self._file.add_rows(WITNESS, noted)

    def _note(self, *, is_open: bool) -> None:
        """Write a pair of clocks, and what was counted since the last one."""
        fact: dict[str, Any] = {} if self._left else {"clocks": [self.clock_pair()]}
        if dropped := self._callbacks.take_dropped():
            fact["dropped"] = dropped
        if not is_open:
            fact |= {
                "stopped": True,
                "gpus": driver.gpus(),
                "lost_nodes": self._callbacks.lost_events,
            }
        self._file.note(fact)

    def _note_names(self, kind: int, rows: np.ndarray) -> None:
        """Write the names that records point to, and those of CUDA functions, each once."""
        if kind in NAMED:
            if texts := self._texts.take(rows, self._callbacks.unloaded_at):
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
        """Record no more, and say why."""
        if not self._left:
            self._disable(self.kinds)
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        folder = self._spool and self._spool.folder
        warn(f"{folder}: {reason}; CUPTI records no more in process {os.getpid()}")
        with suppress(OSError):
            self._file.note({"failed": reason})
