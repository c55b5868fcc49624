"""Chunks of an output, printed on several threads and written in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

PRINTERS = 2
AHEAD = 6  # chunks printed while earlier ones are being written


class Chunk(Protocol):
    """Rows that are few enough to be printed at once."""

    def print(self) -> bytes:
        """Return their bytes."""


def printed(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Print chunks on other threads, a few ahead of the one that writes them, in order."""
    with ThreadPoolExecutor(PRINTERS) as pool:
        ahead: deque[Future[bytes]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(chunk.print))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
