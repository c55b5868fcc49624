"""The timeline as Chrome trace JSON, for Perfetto and chrome://tracing, streamed in bounded memory.

Kept from measurements of those viewers: microseconds with three decimals from rebased integers; raw
UTF-8, never escapes; parents before children; arrows end with ``"bp":"e"``.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from bridge.analyze.timeline import Arrows, Chain, Named, Slices, Timeline
from bridge.analyze.tracks import Track
from bridge.render.rows import (
    Ints,
    Lines,
    Micros,
    Names,
    Number,
    Path,
    Piece,
    Text,
    Through,
    numbers,
)

ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
}  # Perfetto v52 shows \\n and \\t as they are written: blanks instead
SPECIAL = re.compile(r'["\\\x00-\x1f]')
MISSING = -1
END = Text(b"}}")
PRINTERS = 2
AHEAD = 6  # chunks printed while earlier ones are being written


def chrome(
    timeline: Timeline, source: Sequence[str], metadata: Sequence[Mapping[str, Any]] = ()
) -> Iterator[bytes]:
    """Yield the trace in pieces, to be written one after another."""
    about: dict[str, Any] = {
        "generator": "nsight-bridge",
        "source": list(source),
        "base_ns": str(timeline.base),
    }
    if any(metadata):
        about["metadata"] = list(metadata)
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(about) + b',\n"traceEvents":[\n'
    yield (
        b",\n".join(_names(timeline.tracks))
        or b'{"ph":"M","pid":0,"name":"process_name","args":{"name":""}}'
    )
    printer = _Printer(timeline)
    lines = [printer.slices(s) for s in timeline.slices]
    lines += [*printer.phases(timeline.phases), printer.marks(timeline.marks)]
    lines += map(printer.counters, timeline.counters)
    lines += printer.arrows(timeline.arrows)
    yield from _printed(chunk for section in lines for chunk in section.chunks())
    yield b"\n]}\n"


class _Printer:
    """Knows how each kind of event is written."""

    def __init__(self, timeline: Timeline) -> None:
        self.base = timeline.base
        # Where an event is drawn is one of few texts: one lookup instead of two numbers.
        self.places = [
            f',"pid":{t.group.pid},"tid":{t.tid},"ts":'.encode() for t in timeline.tracks
        ]

    def slices(self, s: Slices) -> Lines:
        """Complete events with their arguments."""
        end: list[Piece] = [Text(b',"dur":'), Micros(s.duration), *_args(s), Text(b"}")]
        return Lines([*self._head("X", s, s.start), *end], s.rows)

    def phases(self, s: Slices) -> list[Lines]:
        """Asynchronous events: phases may overlap, and belong to no stack."""
        ident: list[Piece] = [
            Text(b',"id2":{"local":"'),
            Number(np.arange(len(s.start))),
            Text(b'"}'),
        ]
        begin, end = s.start, s.start + s.duration
        return [
            Lines([*self._head("b", s, begin), *ident, *_args(s), Text(b"}")], s.rows),
            Lines([*self._head("e", s, end), *ident, Text(b"}")], s.rows),
        ]

    def marks(self, s: Slices) -> Lines:
        """Instants of a thread."""
        return Lines([*self._head("i", s, s.start), Text(b',"s":"t"}')], s.rows)

    def counters(self, s: Slices) -> Lines:
        """Samples of numbers; the texts of reals are JSON already."""
        value = s.args["value"]
        shown: Piece = (
            Names(value.codes, [text.encode() for text in value.names])
            if isinstance(value, Named)
            else Number(value)  # type: ignore[arg-type]
        )
        return Lines([*self._head("C", s, s.start), Text(b',"args":{"value":'), shown, END], s.rows)

    def arrows(self, a: Arrows) -> list[Lines]:
        """All ends of every arrow, numbered through: correlation ids repeat across processes."""
        number = Number(np.arange(1, len(a.call) + 1))
        from_op = a.op[a.rows] != MISSING
        call = [Through(p, a.call) for p in self._at(a.calls, a.calls.start)]
        # An arrow leaves its op at the time of the call, when the op is open.
        op = [Through(Names(a.ops.track, self.places), a.op), call[1]]
        ends: tuple[tuple[str, Sequence[Piece], Ints], ...] = (
            ('"s"', op, a.rows[from_op]),
            ('"t"', call, a.rows[from_op]),
            ('"s"', call, a.rows[~from_op]),
            ('"f","bp":"e"', self._at(a.activities, a.activities.start), a.rows),
        )
        event = ',\n{"cat":"api","name":"launch","ph":%s,"id":'
        return [
            Lines([Text((event % ph).encode()), number, *at, Text(b"}")], rows)
            for ph, at, rows in ends
        ]

    def _head(self, ph: str, s: Slices, time: Ints) -> list[Piece]:
        name = Names(s.name.codes, list(map(_escaped, s.name.names)))
        head = f',\n{{"ph":"{ph}","cat":"{s.kind}","name":"'
        return [Text(head.encode()), name, Text(b'"'), *self._at(s, time)]

    def _at(self, s: Slices, time: Ints) -> tuple[Names, Micros]:
        return Names(s.track, self.places), Micros(time, self.base)


def _args(s: Slices) -> list[Piece]:
    """Arguments; names that are not there leave no trace, nor do columns without any value."""
    pieces: list[Piece] = []
    for name, column in s.args.items():
        key = f',"{name}":'.encode()
        if isinstance(column, Chain):
            names = Names(column.name.codes, list(map(_escaped, column.name.names)))
            pieces.append(Path(column.node, column.parent, names, key + b'"', b'"'))
        elif isinstance(column, Named):
            if (column.codes >= 0).any():
                texts = [b"", *(key + b'"' + _escaped(t) + b'"' for t in column.names)]
                pieces.append(Names(column.codes + 1, texts))
        elif len(column) and (column != MISSING).any():
            pieces += numbers(key, column)
    return (
        [Text(b',"args":{"kind":"' + s.kind.encode() + b'"'), *pieces, Text(b"}")] if pieces else []
    )


def _printed(chunks: Iterable[Lines]) -> Iterator[bytes]:
    """Print chunks on other threads, a few ahead of the one that writes them, in order."""
    with ThreadPoolExecutor(PRINTERS) as pool:
        ahead: deque[Future[bytes]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(chunk.print))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _names(tracks: Sequence[Track]) -> Iterator[bytes]:
    for group in dict.fromkeys(t.group for t in tracks):
        yield _meta("process_name", group.pid, 0, {"name": group.name})
        yield _meta("process_sort_index", group.pid, 0, {"sort_index": group.order})
    for t in tracks:
        yield _meta("thread_name", t.group.pid, t.tid, {"name": t.name})
        yield _meta("thread_sort_index", t.group.pid, t.tid, {"sort_index": t.order})


def _meta(what: str, pid: int, tid: int, args: dict[str, object]) -> bytes:
    return _json({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr).encode()


def _escaped(text: str) -> bytes:
    """Escape what JSON must have escaped; control characters give way to a blank."""
    clean = SPECIAL.sub(lambda found: ESCAPES.get(found[0], " "), text)
    return clean.encode(errors="replace")
