"""The callbacks that CUPTI calls, in C: `native/callbacks.c`, built for x86_64 and aarch64.

A callback in Python would wait for Python's lock inside of CUPTI, while a thread with Python's lock may wait for CUPTI
in a CUDA call: both would wait forever. The memory of buffers is kept for as long as the process lives, because CUPTI
may hold some after a capture.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from array import array
from functools import cache
from pathlib import Path
from typing import Any

from bridge.capture.cupti.library import Library
from bridge.capture.tool import CaptureError

NATIVE = Path(__file__).parent / "native"
BUFFER_BYTES, BUFFER_COUNT = 2 << 20, 256  # 512 MiB of addresses; memory is taken as CUPTI writes
EVENTS_AT_ONCE = 4096
EVENT_FIELDS = 4  # as `spool.NODE_FIELDS`
MOST_CONTEXTS = 256


class Completed(ctypes.Structure):
    """A buffer that CUPTI has filled, and how many bytes of it."""

    _fields_ = (("address", ctypes.c_void_p), ("valid", ctypes.c_uint64))


class Callbacks:
    """The callbacks of this process: buffers go round between them and the collector's thread."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._native = library
        for name in ("take_dropped", "lost_events", "calls", "unloaded_at"):
            getattr(library, f"bridge_{name}").restype = ctypes.c_uint64
        # Aligned pages that are given back at the end of a capture; private, or forked children would share them.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = [mmap.mmap(-1, BUFFER_BYTES, flags=flags) for _ in range(BUFFER_COUNT)]
        self._by_address = {
            ctypes.addressof(ctypes.c_char.from_buffer(block)): block for block in self._memory
        }
        for address in self._by_address:
            self.give(address)
        self._completed = (Completed * BUFFER_COUNT)()
        self._events = (ctypes.c_int64 * (EVENTS_AT_ONCE * EVENT_FIELDS))()

    @property
    def buffers(self) -> tuple[Any, Any]:
        """What cuptiActivityRegisterCallbacks takes."""
        return self._native.bridge_request, self._native.bridge_complete

    @property
    def event(self) -> Any:
        """What cuptiSubscribe takes."""
        return self._native.bridge_event

    def begin(self, library: Library) -> None:
        """Use the functions of a libcupti."""
        names = ("cuptiActivityGetNumDroppedRecords", "cuptiGetGraphNodeId", "cuptiGetTimestamp")
        functions = (ctypes.cast(getattr(library.functions, n), ctypes.c_void_p) for n in names)
        self._native.bridge_begin(ctypes.c_uint64(BUFFER_BYTES), *functions)

    def forked(self) -> None:
        """Forget what belongs to the parent of this forked process."""
        self._native.bridge_forked()

    def take(self) -> list[tuple[int, int]]:
        """Return address and valid bytes of the buffers that CUPTI has filled.

        A buffer of another user, from whom CUPTI had it when a capture began, is left alone.
        """
        count = self._native.bridge_take(self._completed)
        found = [(one.address or 0, one.valid) for one in self._completed[:count]]
        return [(address, valid) for address, valid in found if address in self._by_address]

    def give(self, address: int) -> None:
        """Let CUPTI fill a buffer again."""
        self._native.bridge_give(ctypes.c_void_p(address))

    def take_events(self) -> array[int]:
        """Return the nodes of graphs that were created, as rows of `spool.NODE_FIELDS`."""
        result = array("q")
        while count := self._native.bridge_take_events(self._events, EVENTS_AT_ONCE):
            result.extend(self._events[: count * EVENT_FIELDS])
        return result

    def take_dropped(self) -> int:
        """Return how many records CUPTI dropped since the last call."""
        return int(self._native.bridge_take_dropped())

    @property
    def lost_events(self) -> int:
        """How many nodes of graphs were created faster than they were taken."""
        return int(self._native.bridge_lost_events())

    @property
    def calls(self) -> int:
        """How often CUPTI has asked for a buffer, or handed one over."""
        return int(self._native.bridge_calls())

    @property
    def unloaded_at(self) -> int:
        """CUPTI's time at which a module was unloaded last, 0 if none was."""
        return int(self._native.bridge_unloaded_at())

    @property
    def contexts(self) -> list[int]:
        """The CUDA contexts that were created since the capture began."""
        found = (ctypes.c_void_p * MOST_CONTEXTS)()
        count = self._native.bridge_contexts(found)
        return [context for context in found[:count] if context]

    def release_memory(self) -> None:
        """Give the pages of all buffers back to the system, after a capture."""
        for block in self._memory:
            block.madvise(mmap.MADV_DONTNEED)


@cache
def callbacks() -> Callbacks:
    """Return the callbacks of this process; raises CaptureError on a machine that they are not built for."""
    machine = platform.machine()
    path = NATIVE / f"callbacks-{machine}.so"
    try:
        return Callbacks(ctypes.CDLL(str(path)))
    except OSError as error:
        raise CaptureError(f"capture by CUPTI is not built for {machine}: {error}") from error
