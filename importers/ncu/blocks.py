"""The outside of an .ncu-rep: blocks, each with the process that it is of. A file cut off shows here.

NVIDIA's library reads what there is of a damaged file and says nothing; and it does not tell processes.
After ``NVR`` come a header and blocks, each a protocol buffer behind its length, before so many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from importers.errors import NotAReport

MAGIC = b"NVR\0"
LENGTH = 4
RESULTS, PAYLOAD, PROCESS = 2, 5, 6  # fields of a block's header
PID, HOST, PROGRAM = 1, 2, 3  # fields of a process
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MORE, BITS = 0x80, 7


@dataclass(frozen=True)
class Process:
    """Which process a kernel ran in."""

    pid: int
    program: str


def is_rep(path: Path) -> bool:
    """Tell whether a file is a report of Nsight Compute, by its first bytes or, if damaged, its name."""
    with path.open("rb") as file:
        return file.read(LENGTH) == MAGIC or path.suffix == ".ncu-rep"


def processes(path: Path) -> list[Process]:
    """Return the process of each result, in order; raises NotAReport for what is no whole report."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise NotAReport(f"{path.name}: not a report of Nsight Compute; was it copied whole?")
    try:
        return list(_blocks(data))
    except (IndexError, ValueError) as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged after {len(data)} bytes; copy or profile it again"
        ) from error


def _blocks(data: bytes) -> Iterator[Process]:
    _, at = _header(data, LENGTH)
    while at < len(data):
        header, at = _header(data, at)
        at += int(header.get(PAYLOAD, 0))
        if at > len(data):
            raise ValueError(at)
        process = dict(_fields(bytes(header.get(PROCESS, b""))))
        program = bytes(process.get(PROGRAM, b"")).decode(errors="replace")
        for _ in range(int(header.get(RESULTS, 0))):
            yield Process(int(process.get(PID, 0)), program)


def _header(data: bytes, at: int) -> tuple[dict[int, int | bytes], int]:
    """Return the fields of the message at a place, and the place after it."""
    size = int.from_bytes(data[at : at + LENGTH], "little")
    start = at + LENGTH
    if start + size > len(data):
        raise ValueError(at)
    return dict(_fields(data[start : start + size])), start + size


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return numbers and values of the fields of a protocol buffer."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in {FIXED32, FIXED64}:
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(kind)
        if at + size > len(message):
            raise ValueError(at)
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & ~MORE) << shift
        shift += BITS
        if byte < MORE:
            return value, at
