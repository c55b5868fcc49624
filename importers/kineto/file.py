"""The file of a trace: whether it is one, and the JSON in it.

Numbers with a point stay texts, so that a time of 16 digits and three decimals loses none of them.
"""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from importers.errors import NotAReport

# -- Files packed by gzip, unpacked up to a limit: a file of 10 MB may hold 10 GB of zeros


GZIP = b"\x1f\x8b"
UNPACKED_CHUNK = 1 << 24  # bytes unpacked at a time
# What JSON and pickles of profiles never reach: they are packed to a tenth or a thirtieth of their size.
RATIO, WINDOW = 200, 1 << 26  # times its size, in so many bytes of what is unpacked


def unpacked(path: Path, largest: int) -> bytes:
    """Return what is in a file, packed or not; raises NotAReport where it is damaged or too large."""
    size = path.stat().st_size
    with path.open("rb") as file:
        is_packed = file.read(len(GZIP)) == GZIP
    if not is_packed and size > largest:
        raise NotAReport(_too_large(path, largest))
    if not is_packed:
        return path.read_bytes()
    try:
        return _packed_unpacked(path, largest)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged ({error}); copy or export it again"
        ) from error


def _packed_unpacked(path: Path, largest: int) -> bytes:
    parts, count, begin = [], 0, (0, 0)
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as file:
        while part := file.read(UNPACKED_CHUNK):
            parts.append(part)
            count += len(part)
            if count > largest:
                raise NotAReport(_too_large(path, largest))
            if count - begin[0] >= WINDOW:
                if count - begin[0] > RATIO * (packed.tell() - begin[1]):
                    raise NotAReport(
                        f"{path.name}: a packed file that holds over {RATIO} times its size; no profile does"
                    )
                begin = count, packed.tell()
    return b"".join(parts)


def _too_large(path: Path, largest: int) -> str:
    return f"{path.name}: over {largest >> 30} GiB; record less, such as fewer steps"


# -- The file of a trace: whether it is one, and the JSON in it


LARGEST = 8 << 30  # bytes of JSON: what is made of them takes several times as much memory
HEAD, CHUNK = 4096, 64  # bytes that tell what a file is, and how many are unpacked at a time
SPACE = b"\xef\xbb\xbf \t\r\n"  # a byte order mark as well
OPENINGS = (b"{", b"[")
EVENTS = "traceEvents"
# No JSON, an integer of 5000 digits; brackets a thousand deep.
DAMAGE = (ValueError, RecursionError)


def is_json(path: Path) -> bool:
    """Tell whether a file begins as JSON does, packed or not."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head.startswith(GZIP):
        head = _unpacked(head)
    return head.lstrip(SPACE)[:1] in OPENINGS


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return what a trace says of the whole, and its events; raises NotAReport for what is no trace."""
    try:
        text = _text(path)
        found = json.loads(text, parse_float=str, parse_constant=lambda _: None, strict=False)
    except DAMAGE as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged: no JSON ({error}); copy or export the trace again"
        ) from error
    if not isinstance(found, dict) or not isinstance(found.get(EVENTS), list):
        raise NotAReport(
            f"{path.name}: JSON, but no trace of PyTorch's profiler (an object with {EVENTS})"
        )
    events = found.pop(EVENTS)
    return found, events


def _unpacked(head: bytes) -> bytes:
    """Unpack what can be of the beginning of a gzip file, damaged further on or not."""
    unpacker, found = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    try:
        for at in range(0, len(head), CHUNK):
            found += unpacker.decompress(head[at : at + CHUNK], HEAD)
    except zlib.error:
        pass
    return found


def _text(path: Path) -> str:
    return unpacked(path, LARGEST).decode("utf-8-sig", errors="replace")


@contextmanager
def without_collection() -> Iterator[None]:
    """Let Python look for no garbage while there are millions of objects: reading takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
