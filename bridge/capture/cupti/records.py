"""Records of CUPTI's activity buffers as arrays.

Every version from CUDA 12.0 to 13.5 has the fields that are read here at the same offsets, for new fields are appended:
`tests/gpu/layouts.json` holds what NVIDIA's headers say. The size of a record does differ. It is learnt from CUPTI
itself, at the first record of each kind, and a buffer whose records do not end exactly where its data ends is read
through CUPTI's own iteration instead.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from bridge.capture.cupti.library import Library

# CUpti_ActivityKind
MEMCPY, MEMSET, DRIVER, RUNTIME, DEVICE, CONTEXT, KERNEL = 1, 2, 4, 5, 8, 9, 10
OVERHEAD, PEER_COPY, CUDA_EVENT, SYNCHRONIZATION, EXTERNAL = 17, 22, 36, 38, 39
MEMORY, GRAPH_TRACE = 49, 51
KIND_COUNT = 64  # more than there are

_ACTIVITY = {"start": ("u8", 16), "end": ("u8", 24)}
_CALL = (
    40,
    {
        "cbid": ("u4", 4), "start": ("u8", 8), "end": ("u8", 16), "pid": ("u4", 24), "thread": ("u4", 28),
        "correlation": ("u4", 32), "result": ("u4", 36),
    },
)  # fmt: skip
# Per kind the smallest size, and the fields that are read, as type and offset.
LAYOUTS: dict[int, tuple[int, dict[str, tuple[str, int]]]] = {
    KERNEL: (
        160,
        {
            **_ACTIVITY, "registers": ("u2", 6), "device": ("u4", 40), "context": ("u4", 44), "stream": ("u4", 48),
            "grid_x": ("i4", 52), "grid_y": ("i4", 56), "grid_z": ("i4", 60), "block_x": ("i4", 64),
            "block_y": ("i4", 68), "block_z": ("i4", 72), "shared_static": ("i4", 76), "shared_dynamic": ("i4", 80),
            "correlation": ("u4", 92), "name": ("u8", 104), "graph_node": ("u8", 144), "graph": ("u4", 156),
        },
    ),
    MEMCPY: (
        80,
        {
            **_ACTIVITY, "copy_kind": ("u1", 4), "source_kind": ("u1", 5), "target_kind": ("u1", 6),
            "bytes": ("u8", 8), "device": ("u4", 32), "context": ("u4", 36), "stream": ("u4", 40),
            "correlation": ("u4", 44), "graph_node": ("u8", 64),
        },
    ),
    PEER_COPY: (
        96,
        {
            **_ACTIVITY, "copy_kind": ("u1", 4), "source_kind": ("u1", 5), "target_kind": ("u1", 6),
            "bytes": ("u8", 8), "device": ("u4", 32), "context": ("u4", 36), "stream": ("u4", 40),
            "correlation": ("u4", 60), "graph_node": ("u8", 72),
        },
    ),
    MEMSET: (
        80,
        {
            **_ACTIVITY, "bytes": ("u8", 8), "device": ("u4", 32), "context": ("u4", 36), "stream": ("u4", 40),
            "correlation": ("u4", 44), "target_kind": ("u2", 50), "graph_node": ("u8", 64),
        },
    ),
    DRIVER: _CALL,
    RUNTIME: _CALL,
    SYNCHRONIZATION: (
        40,
        {
            "kind": ("u4", 4), "start": ("u8", 8), "end": ("u8", 16), "correlation": ("u4", 24), "context": ("u4", 28),
            "stream": ("u4", 32), "event": ("u4", 36),
        },
    ),
    CUDA_EVENT: (
        24,
        {"correlation": ("u4", 4), "context": ("u4", 8), "stream": ("u4", 12), "event": ("u4", 16)},
    ),
    GRAPH_TRACE: (
        40,
        {
            "correlation": ("u4", 4), "start": ("u8", 8), "end": ("u8", 16), "device": ("u4", 24), "graph": ("u4", 28),
            "context": ("u4", 32), "stream": ("u4", 36),
        },
    ),
    MEMORY: (
        120,
        {
            "operation": ("u4", 4), "kind": ("u4", 8), "correlation": ("u4", 12), "address": ("u8", 16),
            "bytes": ("u8", 24), "time": ("u8", 32), "device": ("u4", 52), "context": ("u4", 56), "stream": ("u4", 60),
            "is_async": ("u4", 72), "pool": ("u8", 88), "reserved": ("u8", 104), "allocated": ("u8", 112),
        },
    ),
    OVERHEAD: (
        40,
        {
            "kind": ("u4", 4), "object_kind": ("u4", 8), "thread": ("u4", 16), "start": ("u8", 24), "end": ("u8", 32),
        },
    ),
    EXTERNAL: (24, {"kind": ("u4", 4), "id": ("u8", 8), "correlation": ("u4", 16)}),
    CONTEXT: (16, {"context": ("u4", 4), "device": ("u4", 8), "null_stream": ("u2", 14)}),
    DEVICE: (
        144,
        {
            "memory_bandwidth": ("u8", 8), "memory_bytes": ("u8", 16), "l2_bytes": ("u4", 28), "warp_size": ("u4", 32),
            "clock_khz": ("u4", 36), "sm_count": ("u4", 44), "warps_per_sm": ("u4", 52), "blocks_per_sm": ("u4", 56),
            "shared_per_sm": ("u4", 60), "registers_per_sm": ("u4", 64), "registers_per_block": ("u4", 68),
            "shared_per_block": ("u4", 72), "threads_per_block": ("u4", 76), "compute_major": ("u4", 104),
            "compute_minor": ("u4", 108), "gpu": ("u4", 112), "name": ("u8", 136),
        },
    ),
}  # fmt: skip

WORD = 8  # records are aligned to 8 bytes
UNKNOWN = 1 << 40  # the step past a record whose size is not known yet: beyond any buffer


def record_type(kind: int) -> np.dtype:
    """Return the NumPy type of the records of a kind, of the bytes that every version has."""
    import numpy as np  # takes 60 ms, and a program without CUDA work needs none of it

    size, fields = LAYOUTS[kind]
    in_order = sorted((offset, name, format_) for name, (format_, offset) in fields.items())
    offsets, names, formats = (list(column) for column in zip(*in_order, strict=True))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


class Decoder:
    """Splits buffers into arrays by kind."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._steps = [
            UNKNOWN
        ] * KIND_COUNT  # from a record of a kind to the next, in words of 8 bytes
        self._types: dict[int, Any] = {}

    def split(self, address: int, valid: int) -> dict[int, np.ndarray]:
        """Return the records of a buffer by kind, copied out of it, each kind in its order.

        ``address`` and ``valid`` are where the buffer is, and how many bytes of it CUPTI has filled. Kinds that are not
        in `LAYOUTS` are left out.
        """
        import numpy as np  # as above

        data = (ctypes.c_uint64 * (valid // WORD)).from_address(address)
        words = np.ctypeslib.as_array(data)
        starts = self._starts(words, address, valid)
        kinds = (words[starts] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return {
            kind: self._rows(words, starts[kinds == kind], kind)
            for kind in np.unique(kinds).tolist()
            if kind in LAYOUTS
        }

    def _rows(self, words: np.ndarray, starts: np.ndarray, kind: int) -> np.ndarray:
        import numpy as np  # as above

        if kind not in self._types:
            self._types[kind] = record_type(kind)
        width = LAYOUTS[kind][0] // WORD
        # Each row of the view is the words from one place on; taking some copies these records alone.
        windows = np.lib.stride_tricks.sliding_window_view(words, width)
        rows: np.ndarray = windows[starts].view(self._types[kind])[:, 0]
        return rows

    def _starts(self, words: np.ndarray, address: int, valid: int) -> np.ndarray:
        """Return the word at which each record begins."""
        import numpy as np  # as above

        starts = self._steps_through(words.data.cast("B").cast("I"), len(words))
        if starts is None:
            starts = self._learn(words, address, valid)
        return np.frombuffer(starts, np.int64)

    def _steps_through(self, halves: memoryview, end: int) -> array[int] | None:
        """Step from record to record; None if a size is not known or the last record does not end with the data."""
        steps, at = self._steps, 0
        starts = array("q")
        append = starts.append
        try:
            while at < end:
                append(at)
                at += steps[halves[at + at]]  # the kind is the first half of a word
        except IndexError:  # no kind of CUPTI
            return None
        return starts if at == end else None

    def _learn(self, words: np.ndarray, address: int, valid: int) -> array[int]:
        """Return the starts by CUPTI's own iteration, and note the size of each kind."""
        starts = array("q", self._iterate(address, valid))
        for start, following in zip(starts, [*starts[1:], valid // WORD], strict=True):
            kind = int(words[start]) & 0xFFFFFFFF
            if kind < KIND_COUNT:
                self._steps[kind] = following - start
        return starts

    def _iterate(self, address: int, valid: int) -> Any:
        following = self._library.functions.cuptiActivityGetNextRecord
        base, size, record = ctypes.c_void_p(address), ctypes.c_size_t(valid), ctypes.c_void_p(None)
        reference = ctypes.byref(record)
        while following(base, size, reference) == 0:
            yield ((record.value or 0) - address) // WORD
