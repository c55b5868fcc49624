"""The pages of an SQLite file, and the numbers at any place in them.

The format is that of sqlite.org/fileformat.html. `Unreadable` is raised for whatever is not known
here and for any sign of damage.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import local
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import Ints
from bridge.importers.records import record

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


class Unreadable(Exception):  # noqa: N818 - it says what the file is, not that anything failed
    """The file has something that this module does not read; the message says what."""


def require(condition: object, what: str) -> None:
    """Raise `Unreadable` unless the condition is true."""
    if not condition:
        raise Unreadable(what)


HEADER_BYTES = 100
UTF8 = 1
MIN_PAGE, MIN_USABLE = 512, 480  # bytes
PADDING = 32  # bytes after pages, so that words at their end can be read
MAX_SPREAD = 8  # pages that are read for each one that is needed, rather than that one alone


@record
class PageFile:
    """An open SQLite file; ``usable`` are the bytes of a page that hold data.

    ``has_log`` tells whether newer pages may be in a write-ahead log beside the file.

    Bytes are copied from the file: a file that is cut off meanwhile raises an error, where mapped
    memory would end the process.
    """

    descriptor: int
    page_size: int
    usable: int
    pages: int
    encoding: int
    has_log: bool

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file. Raises `Unreadable` for an invalid header, OSError if it cannot be opened."""
        require(hasattr(os, "preadv"), "this operating system")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            head = os.pread(descriptor, HEADER_BYTES, 0)
            require(len(head) == HEADER_BYTES and head[:16] == b"SQLite format 3\0", "header")
            size = int.from_bytes(head[16:18], "big")
            size = 65536 if size == 1 else size
            require(size >= MIN_PAGE and size & (size - 1) == 0, "page size")
            require(size - head[20] >= MIN_USABLE, "reserved bytes")
            pages = os.fstat(descriptor).st_size // size
            encoding = int.from_bytes(head[56:60], "big")
            has_log = head[18] != 1 or head[19] != 1
            return cls(
                descriptor=descriptor,
                page_size=size,
                usable=size - head[20],
                pages=pages,
                encoding=encoding,
                has_log=has_log,
            )
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, numbers: Ints) -> Pages:
        """Return pages in the order of their numbers, until the next call on the same thread.

        The memory is used again.
        """
        require(len(numbers) and numbers.min() >= 1 and numbers.max() <= self.pages, "page number")
        first, count = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        if count <= MAX_SPREAD * len(numbers):  # with the pages of other tables between them
            data = _scratch(count * self.page_size)
            self._fill(data[:-PADDING], first)
            return Pages(numbers, data, (numbers - first) * self.page_size)
        base = np.arange(len(numbers)) * self.page_size
        data = _scratch(len(numbers) * self.page_size)
        for place, number in zip(base.tolist(), numbers.tolist(), strict=True):
            self._fill(data[place : place + self.page_size], number)
        return Pages(numbers, data, base)

    def _fill(self, data: Bytes, first: int) -> None:
        buffer, place = memoryview(data.data), (first - 1) * self.page_size
        while buffer:
            count = os.preadv(self.descriptor, [buffer], place)
            require(count > 0, "the end of the file")
            buffer, place = buffer[count:], place + count


class Pages(NamedTuple):
    """Pages of a file: their numbers, bytes that hold them, and where each begins in these."""

    number: Ints
    data: Bytes
    base: Ints

    def take(self, number: Ints) -> Pages:
        """Return some of the pages, whose numbers are sorted."""
        return Pages(number, self.data, self.base[np.searchsorted(self.number, number)])

    @property
    def head(self) -> Ints:
        """Where the header of each page begins: on the first page behind that of the file."""
        return self.base + np.where(self.number == 1, HEADER_BYTES, 0)


_MEMORY = local()  # of each thread: fresh memory costs more time than what is read into it


def _scratch(size: int) -> Bytes:
    """Return memory of the thread for some bytes, with zeros behind them."""
    memory = getattr(_MEMORY, "bytes", None)
    if memory is None or len(memory) < size + PADDING:
        memory = _MEMORY.bytes = np.empty(size + PADDING, np.uint8)
    memory[size : size + PADDING] = 0
    result: Bytes = memory[: size + PADDING]
    return result


def words_of(pages: Bytes) -> Words:
    """Return the 8 bytes from every position on, as little-endian words."""
    return np.ndarray((len(pages) - 7,), "<u8", pages, strides=(1,))


def pairs_of(pages: Bytes) -> NDArray[np.uint16]:
    """Return the 2 bytes from every position on, as big-endian numbers."""
    return np.ndarray((len(pages) - 1,), ">u2", pages, strides=(1,))


def quads_of(pages: Bytes) -> NDArray[np.uint32]:
    """Return the 4 bytes from every position on, as big-endian numbers."""
    return np.ndarray((len(pages) - 3,), ">u4", pages, strides=(1,))
