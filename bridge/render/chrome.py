"""The timeline as Chrome trace JSON, for Perfetto and chrome://tracing, streamed in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.analyze.timeline import Timeline
from bridge.analyze.tracks import Track
from bridge.render.events import NATIVE, Events, Style
from bridge.render.printing import printed

NOTHING = b'{"ph":"M","pid":0,"name":"process_name","args":{"name":""}}'


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
    yield from document(timeline, {"displayTimeUnit": "ns", "otherData": about})


def document(timeline: Timeline, head: Mapping[str, Any], style: Style = NATIVE) -> Iterator[bytes]:
    """Yield a JSON object with these entries and the events of the timeline."""
    yield _json(head)[:-1] + b',\n"traceEvents":[\n'
    yield b",\n".join(_names(timeline.tracks, style)) or NOTHING
    yield from printed(
        chunk for lines in Events(timeline, style).lines() for chunk in lines.chunks()
    )
    yield b"\n]}\n"


def _names(tracks: Sequence[Track], style: Style) -> Iterator[bytes]:
    for group in dict.fromkeys(t.group for t in tracks):
        yield _meta("process_name", group.pid, 0, {"name": group.name})
        yield _meta("process_sort_index", group.pid, 0, {"sort_index": group.order})
    for t in () if style.tracks_by_name else tracks:
        yield _meta("thread_name", t.group.pid, t.tid, {"name": t.name})
        yield _meta("thread_sort_index", t.group.pid, t.tid, {"sort_index": t.order})


def _meta(what: str, pid: int, tid: int, args: dict[str, object]) -> bytes:
    return _json({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr).encode()
