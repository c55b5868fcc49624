"""The timeline as Chrome trace JSON in the style of a profiler, streamed in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bridge.analyze.draw.timeline import (
    Arrows,
    Chain,
    Json,
    Links,
    ListColumn,
    NameColumn,
    Slices,
    Timeline,
)
from bridge.analyze.draw.tracks import Group, Track
from bridge.analyze.run.ranks import Ranks
from bridge.importers import frames
from bridge.importers.arrays import scatter
from bridge.importers.capture import Capture
from bridge.importers.records import record
from bridge.render.text_columns import (
    Gather,
    Ints,
    Lines,
    Micros,
    Names,
    Number,
    NumberText,
    OptionalNumber,
    Path,
    Piece,
    Text,
    numbers,
    printed_chunks,
)

# -- Events as lines of JSON


MISSING = -1
END = Text(b"}}")


@record
class Style:
    """How a profiler writes its traces.

    Attributes:
        first: the argument that comes first, in every row that has arguments; "": the kind of the
            event.
        paired: whether a slice is two events, its begin and its end.
        whole_microseconds: whether times are whole microseconds.
        tracks_by_name: whether the id of a track is its name.
        arrow_category: the category of arrows from API calls to activities.
        arrow_name: the name of these arrows.
        binds: whether a number that slices share may stand for these arrows.

    """

    first: str = ""
    paired: bool = False
    whole_microseconds: bool = False
    tracks_by_name: bool = False

    arrow_category: str = "api"
    arrow_name: str = "launch"
    binds: bool = False

    def tid(self, track: Track) -> bytes:
        """Return the thread id of a track in JSON."""
        return quoted([track.name])[0] if self.tracks_by_name else b"%d" % track.tid


NATIVE = Style(binds=True)


# -- Arrows as numbers that slices share


BIND_ID = b',"bind_id":'
# Of an API call: no arrow, from its op, from its op and on to activities, to activities.
DIRECTIONS = [b"", *(b',"flow_in":true', b',"flow_in":true,"flow_out":true', b',"flow_out":true')]
INCOMING, BOTH, OUTGOING = np.arange(1, 4, dtype=np.int8)


def bindings(a: Arrows, *, to_activities: bool) -> tuple[Mapping[str, list[Piece]], Ints]:
    """Return the pieces that bind slices by a number, per role, and the rows of other arrows.

    An op shares its number with its API calls, because viewers attach a flow event to the slice
    that began last, even if that slice has ended. With ``to_activities``, a call shares it with
    the activities that it launched, if it is the only call of its op: viewers continue the arrow.
    A call without op has a number of its own.
    """
    rows = a.rows
    if not len(rows):
        return {}, rows
    call, op = a.call[rows], a.op[rows]
    is_bound = a.single_calls[call] if to_activities else np.zeros(len(rows), bool)
    first = 1 + len(a.call)  # above the numbers of the other arrows
    shared = np.where(op != MISSING, first + op, first + len(a.ops.start) + call)
    direction = np.where(is_bound, np.where(op != MISSING, BOTH, OUTGOING), INCOMING)
    has_number = is_bound | (op != MISSING)
    of_op = scatter(shared[op != MISSING], op[op != MISSING], len(a.ops.start))
    of_call = scatter(shared[has_number], call[has_number], len(a.calls.start))
    code = np.zeros(len(a.calls.start), np.int8)
    code[call[has_number]] = direction[has_number]
    of_activity = scatter(shared[is_bound], rows[is_bound], len(a.call))
    return {
        a.ops.role: [OptionalNumber(b',"flow_out":true' + BIND_ID, of_op)],
        a.calls.role: [Names(code, DIRECTIONS), OptionalNumber(BIND_ID, of_call)],
        a.activities.role: [OptionalNumber(b',"flow_in":true' + BIND_ID, of_activity)],
    }, rows[~is_bound]


class Events:
    """The events of a timeline as lines of JSON."""

    def __init__(self, timeline: Timeline, style: Style = NATIVE) -> None:
        self.timeline, self.style, self.base = timeline, style, timeline.base
        self.bindings, self.unbound = bindings(timeline.arrows, to_activities=style.binds)
        # The process and track of an event are one of few texts: one lookup instead of two numbers.
        self.places = [
            f',"pid":{t.group.pid},"tid":'.encode() + style.tid(t) + b',"ts":'
            for t in timeline.tracks
        ]

    def lines(self) -> Iterator[Lines]:
        """Yield all events, one kind after another."""
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
        """Return complete events with their arguments, or begin and end events."""
        if self.style.paired:
            return self._pairs(s)
        end: list[Piece] = [
            Text(b',"dur":'),
            Micros(s.duration),
            *self._binding(s),
            *self._args(s),
            Text(b"}"),
        ]
        return Lines([*self._head("X", s, s.start), *end], s.rows)

    def _pairs(self, s: Slices) -> Lines:
        """Return begin and end events, in order of time per track; both have the arguments."""
        row, is_end = s.boundaries()
        time = s.start[row] + np.where(is_end, s.duration[row], 0)
        pieces: list[Piece] = [
            Names(is_end.astype(np.int64), [b',\n{"ph":"B"', b',\n{"ph":"E"']),
            Text(f',"cat":"{s.kind}","name":'.encode()),
            Gather(self._name(s), row),
            Gather(Names(s.track, self.places), row),
            self._time(time),
            *(p if isinstance(p, Text) else Gather(p, row) for p in self._args(s)),
            Text(b"}"),
        ]
        return Lines(pieces, np.arange(len(row)))

    def _phases(self, s: Slices) -> list[Lines]:
        """Return asynchronous events, for phases may overlap and are on no stack."""
        ident: list[Piece] = [
            Text(b',"id2":{"local":'),
            NumberText(np.arange(len(s.start))),
            Text(b"}"),
        ]
        begin, end = s.start, s.start + s.duration
        return [
            Lines([*self._head("b", s, begin), *ident, *self._args(s), Text(b"}")], s.rows),
            Lines([*self._head("e", s, end), *ident, Text(b"}")], s.rows),
        ]

    def _marks(self, s: Slices) -> Lines:
        """Return instant events of a thread, a process or all, by their scope."""
        scope = s.args["scope"]
        letters = Names(scope.codes, quoted(scope.names))  # type: ignore[union-attr]
        return Lines([*self._head("i", s, s.start), Text(b',"s":'), letters, Text(b"}")], s.rows)

    def _instants(self, s: Slices) -> Lines:
        """Return instant events with arguments; the first argument is present in every row."""
        first, *rest = s.args
        args = [*_arg(first, s.args[first], b""), *(p for a in rest for p in _arg(a, s.args[a]))]
        end: list[Piece] = [Text(b',"s":"t","args":{'), *args, END]
        return Lines([*self._head("i", s, s.start), *end], s.rows)

    def _counters(self, s: Slices) -> Lines:
        """Return counter events; the texts of real numbers are JSON already."""
        match s.args["value"]:
            case NameColumn(codes, texts) | Json(codes, texts):
                piece: Piece = Names(codes, [text.encode() for text in texts])
            case value:
                piece = Number(value)  # type: ignore[arg-type]
        return Lines([*self._head("C", s, s.start), Text(b',"args":{"value":'), piece, END], s.rows)

    def _arrows(self, a: Arrows) -> list[Lines]:
        """Return both ends of the arrows from API calls to activities that no number binds.

        They are numbered from 1, because correlation ids repeat across processes.
        """
        if not len(self.unbound):
            return []
        number = Number(np.arange(1, len(a.call) + 1))
        call = [Gather(p, a.call) for p in self._at(a.calls, a.calls.start)]
        to = self._at(a.activities, a.activities.start)
        category, name = self.style.arrow_category, self.style.arrow_name
        return [
            _end(category, name, ph="s", number=number, at=call, rows=self.unbound),
            _end(category, name, ph="f", number=number, at=to, rows=self.unbound),
        ]

    def _binding(self, s: Slices) -> list[Piece]:
        """Return the pieces that bind slices to those at the other end of their arrows."""
        return self.bindings.get(s.role, [])

    def _links(self, links: Links) -> list[Lines]:
        rows = np.arange(len(links.first))
        number = Number(rows + 1)
        places = self._at(links.slices, links.slices.start)
        return [
            _end(
                links.kind,
                links.kind,
                ph=ph,
                number=number,
                at=[Gather(p, row) for p in places],
                rows=rows,
            )
            for ph, row in (("s", links.first), ("f", links.second))
        ]

    def _head(self, ph: str, s: Slices, time: Ints) -> list[Piece]:
        head = f',\n{{"ph":"{ph}","cat":"{s.kind}","name":'
        return [Text(head.encode()), self._name(s), *self._at(s, time)]

    def _name(self, s: Slices) -> Names:
        return Names(s.name.codes, quoted(s.name.names))

    def _at(self, s: Slices, time: Ints) -> tuple[Names, Micros | Number]:
        return Names(s.track, self.places), self._time(time)

    def _time(self, time: Ints) -> Micros | Number:
        if self.style.whole_microseconds:
            return Number((time - self.base) // 1_000)
        return Micros(time, self.base)

    def _args(self, s: Slices) -> list[Piece]:
        """Return the arguments; missing values and columns without any value are not written."""
        args = dict(s.args)
        first: list[Piece] = [Text(f',"args":{{"kind":"{s.kind}"'.encode())]
        if self.style.first:  # every row has it; each further argument begins with a comma
            if self.style.first not in args:
                return []
            first = [Text(b',"args":{'), *_arg(self.style.first, args.pop(self.style.first), b"")]
        pieces = [piece for name, column in args.items() for piece in _arg(name, column)]
        return [*first, *pieces, Text(b"}")] if pieces or self.style.first else []


def _arg(name: str, column: object, comma: bytes = b",") -> list[Piece]:
    key = comma + f'"{name}":'.encode()
    match column:
        case Chain():
            names = Names(column.name.codes, [text[1:-1] for text in quoted(column.name.names)], 1)
            return [
                Path(
                    node=column.node, parent=column.parent, names=names, head=key + b'"', tail=b'"'
                )
            ]
        case NameColumn():
            return _name_pieces(column.codes, [key + text for text in quoted(column.names)])
        case Json():
            return _name_pieces(column.codes, [key + text.encode() for text in column.texts])
        case ListColumn():
            between = [piece for c in column.columns for piece in (Text(b","), Number(c))]
            return [Text(key + b"["), *between[1:], Text(b"]")]
        case _:
            return _integers(key, column, always=not comma)  # type: ignore[arg-type]


def _integers(key: bytes, column: Ints, *, always: bool) -> list[Piece]:
    """Return the pieces of a column; none for a column without any value, unless ``always``."""
    if always:
        return [Text(key), Number(column)]
    return numbers(key, column) if len(column) and (column != MISSING).any() else []


def _name_pieces(codes: Ints, texts: Sequence[bytes]) -> list[Piece]:
    # MISSING is the last text.
    return [Names(codes, [*texts, b""])] if (codes != MISSING).any() else []


def _end(
    category: str, name: str, ph: str, number: Number, at: Sequence[Piece], rows: Ints
) -> Lines:
    """Return one end of arrows; the last end is bound to the slice around it."""
    phase = '"f","bp":"e"' if ph == "f" else f'"{ph}"'
    event = f',\n{{"cat":"{category}","name":"{name}","ph":{phase},"id":'
    return Lines([Text(event.encode()), number, *at, Text(b"}")], rows)


def quoted(texts: Sequence[str]) -> list[bytes]:
    """Return texts as JSON, in UTF-8; characters that cannot be encoded become question marks."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    return [encode(text).encode(errors="replace") for text in texts]


# -- The document around the events


NOTHING = b'{"ph":"M","pid":0,"name":"process_name","args":{"name":""}}'


def chrome(
    timeline: Timeline, source: Sequence[str], metadata: Sequence[Mapping[str, Any]] = ()
) -> Iterator[bytes]:
    """Yield the pieces of the trace, in order."""
    other_data: dict[str, Any] = {
        "generator": "nsight-bridge",
        "source": list(source),
        "base_ns": str(timeline.base),
    }
    if any(metadata):
        other_data["metadata"] = list(metadata)
    yield from document(timeline, {"displayTimeUnit": "ns", "otherData": other_data})


def document(timeline: Timeline, head: Mapping[str, Any], style: Style = NATIVE) -> Iterator[bytes]:
    """Yield the pieces of a JSON object: the entries of ``head``, and the events."""
    # With spaces behind colons: HolisticTraceAnalysis does not find the rank without.
    text = json.dumps(head, ensure_ascii=False, default=repr)
    yield text[:-1].encode() + b',\n"traceEvents":[\n'
    yield b",\n".join(_names(timeline.tracks, style)) or NOTHING
    yield from printed_chunks(
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


def _meta(name: str, pid: int, tid: int, args: dict[str, object]) -> bytes:
    return _json({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr).encode()


# -- Documents in the formats of other profilers


KINETO = Style(first="External id", arrow_category="ac2g", arrow_name="ac2g")
RAF = Style(first="args_string", paired=True, whole_microseconds=True, tracks_by_name=True)
MXNET = Style(first="none", paired=True)
MEGENGINE = Style(
    first="__name__", arrow_category="KernelLaunch", arrow_name="KernelLaunch", paired=True
)
PROPERTIES = {  # Kineto's names of the columns of devices
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


def torch(
    timeline: Timeline,
    capture: Capture,
    *,
    for_tensorboard: bool = False,
    ranks: Mapping[tuple[int, int], int] | None = None,
) -> Iterator[bytes]:
    """Yield a trace of Kineto's schema 1, with rank and facts of the process of its first track.

    ``for_tensorboard`` gives API calls the older category that TensorBoard's plugin knows;
    ``ranks`` are those of `Ranks.distinct`, where several traces of a capture are written.
    """
    groups = list(dict.fromkeys(track.group for track in timeline.tracks))
    first = groups[0] if groups else Group(0, "", 0)
    facts = capture.facts[first.report]
    ranks = Ranks.of(capture).distinct if ranks is None else ranks
    own = {
        "schemaVersion": 1,
        "deviceProperties": list(_devices(groups, capture)),
        "distributedInfo": _distributed(facts.metadata, (first.report, first.process), ranks),
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": max(facts.epoch_ns, 0) + timeline.base,
        "generator": "nsight-bridge",
    }
    # HolisticTraceAnalysis takes the first "rank" of the file, whatever it belongs to.
    head = own | {key: value for key, value in _added(facts.metadata).items() if key not in own}
    if for_tensorboard:
        slices = [replace(s, kind=FOR_TENSORBOARD.get(s.kind, s.kind)) for s in timeline.slices]
        timeline = replace(timeline, slices=slices)
    yield from document(timeline, head, KINETO)


HOST = {"host": "host_name"}  # PyTorch's name
IN_DISTRIBUTED = frozenset(["rank", "world_size", "backend", "distributed", "process_ranks"])
EVENTS = "traceEvents"


def _added(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata for which PyTorch has keys at the top, beside the trace's own: trace_id, what was added."""
    return {
        HOST.get(key, key): value
        for key, value in metadata.items()
        if key not in IN_DISTRIBUTED and key != EVENTS
    }


def _distributed(
    metadata: Mapping[str, Any], process: tuple[int, int], ranks: Mapping[tuple[int, int], int]
) -> dict[str, Any]:
    """Return rank and size of the world, then backend, groups and NCCL's version as recorded.

    A world of unknown size reaches up to the highest rank.
    """
    world, groups = metadata.get("world_size"), metadata.get("distributed")
    own = {
        "rank": ranks.get(process, 0),
        "world_size": world if isinstance(world, int) else max(ranks.values(), default=0) + 1,
    }
    recorded = {
        "backend": metadata.get("backend", "nccl"),
        **(groups if isinstance(groups, Mapping) else {}),
    }
    return own | {key: value for key, value in recorded.items() if key not in own}


def raf(timeline: Timeline, _report: Capture) -> Iterator[bytes]:
    """Yield a trace in RAF's format: begin and end events in whole microseconds."""
    yield from document(timeline, {"displayTimeUnit": "ns"}, RAF)


def mxnet(timeline: Timeline, _report: Capture) -> Iterator[bytes]:
    """Yield a trace in MXNet's format."""
    yield from document(timeline, {"displayTimeUnit": "ns"}, MXNET)


def megengine(timeline: Timeline, capture: Capture) -> Iterator[bytes]:
    """Yield a trace in MegEngine's format; ``localTime`` is its start in µs since the epoch."""
    start_us = (max(capture.facts[0].epoch_ns, 0) + timeline.base) / 1000
    yield from document(
        timeline, {"displayTimeUnit": "ns", "metadata": {"localTime": start_us}}, MEGENGINE
    )


def _devices(groups: Iterable[Group], capture: Capture) -> Iterator[dict[str, Any]]:
    """Yield the properties of the GPU of each group; ``id`` is the number of the group."""
    table = capture.devices
    keys = zip(*(table[c].tolist() for c in ("report", "process", "device")), strict=True)
    rows = {key: row for row, key in enumerate(keys)}
    for group in groups:
        row = rows.get((group.report, group.process, group.device))
        if row is not None:
            gpu = {name: int(table[name][row]) for name in frames.DEVICE_FACTS}
            yield {"id": group.pid, "name": table.name[row], **_properties(gpu)}


def _properties(gpu: Mapping[Any, Any]) -> dict[str, Any]:
    known = {name: gpu[column] for name, column in PROPERTIES.items() if gpu[column] != UNKNOWN}
    if gpu["warps_per_sm"] != UNKNOWN:
        known["maxThreadsPerMultiprocessor"] = gpu["warps_per_sm"] * gpu["warp_size"]
    return known


RENDERERS: Mapping[str, Renderer] = {
    "torch": torch,
    "raf": raf,
    "mxnet": mxnet,
    "megengine": megengine,
}
