"""Files packed by gzip, unpacked up to a limit: a file of 10 MB may hold 10 GB of zeros."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from importers.errors import NotAReport

GZIP = b"\x1f\x8b"
CHUNK = 1 << 24  # bytes unpacked at a time
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
        return _unpacked(path, largest)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged ({error}); copy or export it again"
        ) from error


def _unpacked(path: Path, largest: int) -> bytes:
    parts, count, begin = [], 0, (0, 0)
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as file:
        while part := file.read(CHUNK):
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
