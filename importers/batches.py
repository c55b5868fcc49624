"""Batches of an Arrow stream, each made outside the GIL, so that several threads read at once.

nanoarrow asks a stream for its next batch with the GIL held, and SQLite does its work right there: through
ctypes, which lets go of it, two threads take half the time of one. The layout is that of the Arrow C stream
interface (https://arrow.apache.org/docs/format/CStreamInterface.html), which is frozen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import nanoarrow
from nanoarrow.c_array import allocate_c_array

_Asked = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Said = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


class _Stream(ctypes.Structure):
    _fields_ = (
        ("get_schema", _Asked),
        ("get_next", _Asked),
        ("get_last_error", _Said),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def batches(stream: Any) -> Iterator[Any]:
    """Yield the batches of what has ``__arrow_c_stream__``, as views of nanoarrow; RuntimeError where it fails."""
    with nanoarrow.c_array_stream(stream) as taken:
        schema, address = taken.get_schema(), taken._addr()  # noqa: SLF001 - nanoarrow documents it for this
        callbacks = _Stream.from_address(address)
        while True:
            batch = allocate_c_array(schema)
            if callbacks.get_next(address, batch._addr()):  # noqa: SLF001
                raise RuntimeError(
                    (callbacks.get_last_error(address) or b"").decode(errors="replace")
                )
            if not batch.is_valid():
                return
            yield batch.view()
