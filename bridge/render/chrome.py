"""The timeline as Chrome trace JSON, for Perfetto and chrome://tracing, streamed in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridge.analyze.timeline import Arrows, Chain, Json, Links, Listed, Named, Slices, Timeline
from bridge.analyze.tracks import Group, Track, rank_of
from bridge.render.chunks import printed
from bridge.render.text_columns import (
    Given,
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
from importers.report import Report

# -- How each kind of event of a Chrome trace is written, in the manner of one tool or another


MISSING = -1
END = Text(b"}}")
BOUND = 1 << 40  # beyond the numbers that viewers give to arrows of the other kind


@dataclass(frozen=True)
class Style:
    """The manner: what arrows from a call are called, and with which argument all begin.

    That is ``first``, of every row that has arguments; where none is named, the kind. ``paired`` slices
    are two events, their begin and their end, instead of one.
    """

    first: str = ""
    paired: bool = False
    whole_microseconds: bool = False
    tracks_by_name: bool = False

    def tid(self, track: Track) -> bytes:
        """Return what a track is known by."""
        return b'"' + escaped(track.name) + b'"' if self.tracks_by_name else b"%d" % track.tid

    arrow_category: str = "api"
    arrow_name: str = "launch"


NATIVE = Style()


class Events:
    """The events of a timeline as lines."""

    def __init__(self, timeline: Timeline, style: Style = NATIVE) -> None:
        self.timeline, self.style, self.base = timeline, style, timeline.base
        # Where an event is drawn is one of few texts: one lookup instead of two numbers.
        self.places = [
            f',"pid":{t.group.pid},"tid":'.encode() + style.tid(t) + b',"ts":'
            for t in timeline.tracks
        ]

    def lines(self) -> Iterator[Lines]:
        """Give all events, a kind at a time."""
        timeline = self.timeline
        yield from map(self._slices, timeline.slices)
        yield from self._phases(timeline.phases)
        yield self._marks(timeline.marks)
        yield from map(self._instants, timeline.instants)
        yield from map(self._counters, timeline.counters)
        yield from self._arrows(timeline.arrows)
        for links in timeline.links:
            yield from self._links(links)

    def _slices(self, s: Slices) -> Lines:
        """Complete events with their arguments, or their begins and ends."""
        if self.style.paired:
            return self._pairs(s)
        end: list[Piece] = [
            Text(b',"dur":'),
            Micros(s.duration),
            *self._bound(s),
            *self._args(s),
            Text(b"}"),
        ]
        return Lines([*self._head("X", s, s.start), *end], s.rows)

    def _pairs(self, s: Slices) -> Lines:
        """Begins and ends, those of a track in order of time; both have the arguments."""
        row, is_end = s.boundaries()
        name = Names(s.name.codes, list(map(escaped, s.name.names)))
        time = s.start[row] + np.where(is_end, s.duration[row], 0)
        pieces: list[Piece] = [
            Names(is_end.astype(np.int64), [b',\n{"ph":"B"', b',\n{"ph":"E"']),
            Text(f',"cat":"{s.kind}","name":"'.encode()),
            Through(name, row),
            Text(b'"'),
            Through(Names(s.track, self.places), row),
            self._time(time),
            *(p if isinstance(p, Text) else Through(p, row) for p in self._args(s)),
            Text(b"}"),
        ]
        return Lines(pieces, np.arange(len(row)))

    def _phases(self, s: Slices) -> list[Lines]:
        """Asynchronous events: phases may overlap, and belong to no stack."""
        ident: list[Piece] = [
            Text(b',"id2":{"local":"'),
            Number(np.arange(len(s.start))),
            Text(b'"}'),
        ]
        begin, end = s.start, s.start + s.duration
        return [
            Lines([*self._head("b", s, begin), *ident, *self._args(s), Text(b"}")], s.rows),
            Lines([*self._head("e", s, end), *ident, Text(b"}")], s.rows),
        ]

    def _marks(self, s: Slices) -> Lines:
        """Instants of a thread."""
        return Lines([*self._head("i", s, s.start), Text(b',"s":"t"}')], s.rows)

    def _instants(self, s: Slices) -> Lines:
        """Instants with arguments, the first of which every one has."""
        first, *rest = s.args
        args = [*_arg(first, s.args[first], b""), *(p for a in rest for p in _arg(a, s.args[a]))]
        end: list[Piece] = [Text(b',"s":"t","args":{'), *args, END]
        return Lines([*self._head("i", s, s.start), *end], s.rows)

    def _counters(self, s: Slices) -> Lines:
        """Samples of numbers; the texts of reals are JSON already."""
        match s.args["value"]:
            case Named(codes, texts) | Json(codes, texts):
                shown: Piece = Names(codes, [text.encode() for text in texts])
            case value:
                shown = Number(value)  # type: ignore[arg-type]
        return Lines([*self._head("C", s, s.start), Text(b',"args":{"value":'), shown, END], s.rows)

    def _arrows(self, a: Arrows) -> list[Lines]:
        """Both ends of the arrows from calls, numbered through: correlation ids repeat across processes."""
        number = Number(np.arange(1, len(a.call) + 1))
        call = [Through(p, a.call) for p in self._at(a.calls, a.calls.start)]
        to = self._at(a.activities, a.activities.start)
        category, name = self.style.arrow_category, self.style.arrow_name
        return [
            _end(category, name, "s", number, call, a.rows),
            _end(category, name, "f", number, to, a.rows),
        ]

    def _bound(self, s: Slices) -> list[Piece]:
        """What binds an op to its API calls: a number that they share.

        An event of its own could not: viewers would take it for one of the slice that began last, be it over or not.
        """
        a = self.timeline.arrows
        rows = a.rows[a.op[a.rows] != MISSING]
        bound = np.full(len(s.start), MISSING)
        if s.role == a.ops.role:
            bound[a.op[rows]] = a.op[rows] + BOUND
            return [Given(b',"flow_out":true,"bind_id":', bound)] if len(rows) else []
        if s.role == a.calls.role:
            bound[a.call[rows]] = a.op[rows] + BOUND
            return [Given(b',"flow_in":true,"bind_id":', bound)] if len(rows) else []
        return []

    def _links(self, links: Links) -> list[Lines]:
        rows = np.arange(len(links.first))
        number = Number(rows + 1)
        places = self._at(links.slices, links.slices.start)
        return [
            _end(links.kind, links.kind, ph, number, [Through(p, row) for p in places], rows)
            for ph, row in (("s", links.first), ("f", links.then))
        ]

    def _head(self, ph: str, s: Slices, time: Ints) -> list[Piece]:
        name = Names(s.name.codes, list(map(escaped, s.name.names)))
        head = f',\n{{"ph":"{ph}","cat":"{s.kind}","name":"'
        return [Text(head.encode()), name, Text(b'"'), *self._at(s, time)]

    def _at(self, s: Slices, time: Ints) -> tuple[Names, Micros | Number]:
        return Names(s.track, self.places), self._time(time)

    def _time(self, time: Ints) -> Micros | Number:
        if self.style.whole_microseconds:
            return Number((time - self.base) // 1_000)
        return Micros(time, self.base)

    def _args(self, s: Slices) -> list[Piece]:
        """Arguments; what is not there leaves no trace, nor do columns without any value."""
        args = dict(s.args)
        first: list[Piece] = [Text(f',"args":{{"kind":"{s.kind}"'.encode())]
        if self.style.first:  # which every row has: each further one brings its comma
            if self.style.first not in args:
                return []
            first = [Text(b',"args":{'), *_arg(self.style.first, args.pop(self.style.first), b"")]
        pieces = [piece for name, column in args.items() for piece in _arg(name, column)]
        return [*first, *pieces, Text(b"}")] if pieces or self.style.first else []


def _arg(name: str, column: object, comma: bytes = b",") -> list[Piece]:
    key = comma + f'"{name}":'.encode()
    match column:
        case Chain():
            names = Names(column.name.codes, list(map(escaped, column.name.names)))
            return [Path(column.node, column.parent, names, key + b'"', b'"')]
        case Named():
            return _chosen(
                column.codes, [key + b'"' + escaped(text) + b'"' for text in column.names]
            )
        case Json():
            return _chosen(column.codes, [key + text.encode() for text in column.texts])
        case Listed():
            between = [piece for c in column.columns for piece in (Text(b","), Number(c))]
            return [Text(key + b"["), *between[1:], Text(b"]")]
        case _:
            return _integers(key, column, always=not comma)  # type: ignore[arg-type]


def _integers(key: bytes, column: Ints, *, always: bool) -> list[Piece]:
    """Return the column's pieces: of a column without any value none, unless its place must be filled."""
    if always:
        return [Text(key), Number(column)]
    return numbers(key, column) if len(column) and (column != MISSING).any() else []


def _chosen(codes: Ints, texts: Sequence[bytes]) -> list[Piece]:
    return [Names(codes + 1, [b"", *texts])] if (codes != MISSING).any() else []


def _end(
    category: str, name: str, ph: str, number: Number, at: Sequence[Piece], rows: Ints
) -> Lines:
    """One end of arrows; the last one leads to the slice around it."""
    how = '"f","bp":"e"' if ph == "f" else f'"{ph}"'
    event = f',\n{{"cat":"{category}","name":"{name}","ph":{how},"id":'
    return Lines([Text(event.encode()), number, *at, Text(b"}")], rows)


def escaped(text: str) -> bytes:
    """Return a text as it stands between the quotes of JSON, in UTF-8 but for what must be escaped."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace")


# -- The timeline as Chrome trace JSON, for Perfetto and chrome://tracing, streamed in bounded memory


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


# -- The heads and manners of the traces of other profilers, around the events of a timeline


KINETO = Style(first="External id", arrow_category="ac2g", arrow_name="ac2g")
RAF = Style(first="args_string", paired=True, whole_microseconds=True, tracks_by_name=True)
MXNET = Style(first="none", paired=True)
MEGENGINE = Style(
    first="__name__", arrow_category="KernelLaunch", arrow_name="KernelLaunch", paired=True
)
PROPERTIES = {  # as Kineto calls what is known of a GPU
    "totalGlobalMem": "memory_bytes",
    "computeMajor": "compute_major",
    "computeMinor": "compute_minor",
    "maxThreadsPerBlock": "threads_per_block",
    "regsPerBlock": "registers_per_block",
    "regsPerMultiprocessor": "registers_per_sm",
    "warpSize": "warp_size",
    "sharedMemPerBlock": "shared_per_block",
    "sharedMemPerMultiprocessor": "shared_per_sm",
    "numSms": "sm_count",
    "sharedMemPerBlockOptin": "shared_per_block_optin",
}
FOR_TENSORBOARD = {"cuda_runtime": "Runtime", "cuda_driver": "Runtime"}
UNKNOWN = -1

Renderer = Callable[..., Iterator[bytes]]


def torch(timeline: Timeline, report: Report, *, for_tensorboard: bool = False) -> Iterator[bytes]:
    """Yield a trace of Kineto's schema 1; TensorBoard's plugin knows API calls by an older name only.

    What it says of the run is of the capture that its first track is of.
    """
    groups = list(dict.fromkeys(track.group for track in timeline.tracks))
    first = groups[0].report if groups else 0
    facts = report.facts[first]
    world = facts.metadata.get("world_size")
    distributed = {
        "rank": rank_of(report, first) or 0,
        "world_size": world if isinstance(world, int) else 1,
    }
    head = {
        "schemaVersion": 1,
        "deviceProperties": list(_devices(groups, report)),
        "distributedInfo": {"backend": "nccl", **distributed},
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": max(facts.epoch_ns, 0) + timeline.base,
        "generator": "nsight-bridge",
    }
    if for_tensorboard:
        slices = [replace(s, kind=FOR_TENSORBOARD.get(s.kind, s.kind)) for s in timeline.slices]
        timeline = replace(timeline, slices=slices)
    yield from document(timeline, head, KINETO)


def raf(timeline: Timeline, _report: Report) -> Iterator[bytes]:
    """Yield a trace as RAF dumps it: begins and ends in whole microseconds."""
    yield from document(timeline, {"displayTimeUnit": "ns"}, RAF)


def mxnet(timeline: Timeline, _report: Report) -> Iterator[bytes]:
    """Yield a trace as MXNet dumps it."""
    yield from document(timeline, {"displayTimeUnit": "ns"}, MXNET)


def megengine(timeline: Timeline, report: Report) -> Iterator[bytes]:
    """Yield a trace as MegEngine dumps it; ``localTime`` is when it began, in µs of the epoch."""
    began = (max(report.facts[0].epoch_ns, 0) + timeline.base) / 1000
    yield from document(
        timeline, {"displayTimeUnit": "ns", "metadata": {"localTime": began}}, MEGENGINE
    )


def _devices(groups: Iterable[Group], report: Report) -> Iterator[dict[str, Any]]:
    """Give what is known of the GPU of each group that is a device's; ``id`` is the group's own number."""
    table = report.devices
    keys = zip(*(table[c].tolist() for c in ("report", "process", "device")), strict=True)
    known = dict(zip(keys, table.to_dict("records"), strict=True))
    for group in groups:
        gpu = known.get((group.report, group.process, group.device))
        if gpu:
            yield {"id": group.pid, "name": gpu["name"], **_properties(gpu)}


def _properties(gpu: Mapping[Any, Any]) -> dict[str, Any]:
    known = {name: gpu[own] for name, own in PROPERTIES.items() if gpu[own] != UNKNOWN}
    if gpu["warps_per_sm"] != UNKNOWN:
        known["maxThreadsPerMultiprocessor"] = gpu["warps_per_sm"] * gpu["warp_size"]
    return known


RENDERERS: Mapping[str, Renderer] = {
    "torch": torch,
    "raf": raf,
    "mxnet": mxnet,
    "megengine": megengine,
}
