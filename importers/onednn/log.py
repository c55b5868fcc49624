"""Logs of oneDNN as one frame of what was run and made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from importers import frames
from importers.errors import NotAReport, NothingRecorded
from importers.onednn.lines import Piece, pieces

BLOCK = 1 << 25  # bytes read at a time: a log may be larger than the memory
NOTHING = (
    "no line of oneDNN: run the program with ONEDNN_VERBOSE=1 (of old versions DNNL_VERBOSE=1)"
)


@dataclass(frozen=True)
class Log:
    """What oneDNN logged.

    ``events``: a row per execution or creation, in no particular order. ``component`` ("primitive", or "graph" of a
    partition, whose primitives have rows as well), ``operation`` ("exec", "create:cache_miss" …), the fields under
    the names of oneDNN's template ('' where the version has no such field), ``duration_ns`` (int64). ``unread`` are
    lines that should be events and are none; ``info`` what it says of the library and the machine.
    """

    source: tuple[str, ...]
    events: pd.DataFrame
    unread: tuple[str, ...]
    info: tuple[str, ...]


def load(*paths: Path) -> Log:
    """Read logs, put together. Raises ReportError, a line for the user, where one has no line of oneDNN."""
    logs = [_load(path) for path in paths]
    return Log(
        tuple(path.name for path in paths),
        frames.concat([log.events for log in logs]),
        tuple(line for log in logs for line in log.unread),
        tuple(dict.fromkeys(line for log in logs for line in log.info)),
    )


def _load(path: Path) -> Log:
    try:
        with path.open("rb") as file:
            found = list(pieces(_blocks(file)))
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error
    if not found:
        raise NothingRecorded(f"{path.name}: {NOTHING}")
    log = _together(path.name, found)
    if not len(log.events):
        raise NothingRecorded(f"{path.name}: {_none(log)}")
    return log


def _together(name: str, found: list[Piece]) -> Log:
    return Log(
        (name,),
        frames.concat([piece.events for piece in found]),
        tuple(line for piece in found for line in piece.unread),
        tuple(dict.fromkeys(line for piece in found for line in piece.info)),
    )


def _none(log: Log) -> str:
    if log.unread:
        return f"no line of oneDNN could be read, such as {log.unread[0][:100]!r}; is it whole?"
    return "oneDNN ran nothing; did the program end before its work?"


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in blocks that end with a line; a line longer than a block is cut."""
    rest = b""
    while block := file.read(BLOCK):
        whole, newline, end = block.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = end
        else:
            yield rest
            rest = block
    yield rest
