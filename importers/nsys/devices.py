"""Device records of an export as the frames `activities`, `waits`, `cuda_streams` and `memory`."""

from __future__ import annotations

import re

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, lookup
from bridge.importers.nsys import schema
from bridge.importers.nsys.annotations import Strings
from bridge.importers.sqlite_columns import Columns, ints_of, texts_of

# -- Waits: synchronizations and event records


UNKNOWN, EVENT_RECORD = (frames.WAIT_KINDS.index(kind) for kind in ("unknown", "event_record"))


SYNC_CALLS = tuple(
    (re.compile(rf"cu(?:da)?(?:{pattern})(?![A-Za-z])"), kind)
    for pattern, kind in (
        ("Event(?:Synchronize|Query)", "event"),
        ("StreamWaitEvent", "stream_wait"),
        ("Stream(?:Synchronize|Query)", "stream"),
        ("(?:Device|Thread|Ctx)Synchronize", "context"),
    )
)


def waits(read: dict[str, Columns], launches: frames.Launches) -> frames.Waits:
    """Return the frame `waits`: synchronizations, then event records with their calls' times."""
    callers = launches.process
    parts = [_with_process(read[name], callers) for name in ("syncs", "events")]
    tables = [_syncs(parts[0], launches), _events(parts[1], launches)]
    return frames.Waits.concat([f for f in tables if len(f)] or tables[:1])


def _with_process(columns: Columns, callers: Ints) -> dict[str, Ints]:
    ints = {name: ints_of(columns, name) for name in columns}
    return ints | {"process": fill_process(ints["process"], callers)}


def _syncs(columns: dict[str, Ints], launches: frames.Launches) -> frames.Waits:
    """Return the synchronizations. Their kind is that of the API call, where it is known by its name.

    nsys up to 2025.3 records other kinds: cudaDeviceSynchronize as one of an event, for example.
    """
    kind = columns["kind"]
    kind = np.where((kind >= 0) & (kind < EVENT_RECORD), kind, UNKNOWN)
    call = call_rows((columns["process"], columns["correlation"]), launches)
    kind_of_name = np.array([_sync_kind(text) for text in launches.name.texts], np.int64)
    of_call = lookup(kind_of_name, lookup(launches.name.codes, call))
    return _wait_frame(columns, np.where(of_call == MISSING, kind, of_call))


def _sync_kind(api_call: str) -> int:
    """Return the kind of synchronization that an API call makes, -1 for other calls."""
    kinds = (kind for pattern, kind in SYNC_CALLS if pattern.match(api_call))
    return next((frames.WAIT_KINDS.index(kind) for kind in kinds), MISSING)


def _events(columns: dict[str, Ints], launches: frames.Launches) -> frames.Waits:
    row = call_rows((columns["process"], columns["correlation"]), launches)
    times = {"start": lookup(launches.start, row), "end": lookup(launches.end, row)}
    return _wait_frame(columns | times, np.full(len(row), EVENT_RECORD))


def _wait_frame(columns: dict[str, Ints], kinds: Ints) -> frames.Waits:
    return frames.Waits(columns | {"kind": frames.Names(kinds, frames.WAIT_KINDS)})


def cuda_streams(
    columns: Columns, *working: frames.HostEvents | frames.Activities
) -> frames.CudaStreams:
    """Return the frame `cuda_streams`: the streams of the processes of ``working``, ranges or API calls."""
    ints = _ints(columns)
    known = np.unique(np.concatenate([table.process for table in working]))
    of_pid = dict(zip(frames.pid(known).tolist(), known.tolist(), strict=True))
    process = np.array([of_pid.get(pid, MISSING) for pid in ints.pop("pid").tolist()], np.int64)
    kind = frames.Names(
        np.clip(ints.pop("kind"), 0, len(frames.STREAM_KINDS) - 1), frames.STREAM_KINDS
    )
    return frames.CudaStreams(ints, process=process, kind=kind)


def call_rows(keys: tuple[Ints, Ints], launches: frames.Launches) -> Ints:
    """Return the row of each key's earliest call; -1 without a call and for ids below 1."""
    count = len(keys[0])
    if not count:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(np.isin(launches.correlation, keys[1]))
    rows = rows[np.argsort(launches.start[rows], kind="stable")]
    launch_keys = launches.process[rows], launches.correlation[rows]
    codes, firsts = frames.distinct_keys(
        *(np.concatenate(pair) for pair in zip(keys, launch_keys, strict=True))
    )
    first = np.full(len(firsts), len(rows))
    np.minimum.at(first, codes[count:], np.arange(len(rows)))
    first[first == len(rows)] = MISSING
    result = lookup(rows, first[codes[:count]])
    return np.where(keys[1] > 0, result, MISSING)


# -- Memory: allocations and releases


UNKNOWN_MEMORY = frames.MEMORY_KINDS.index("unknown")


def memory(columns: Columns, launches: frames.Launches) -> frames.Memory:
    """Return the frame `memory`: a row per allocation and release; other operations are left out.

    Some exports have 0 as the time of all of them: these get the time of the call.
    """
    ints = {name: ints_of(columns, name) for name in columns if name != "name"}
    rows = np.flatnonzero(np.isin(ints["operation"], frames.OPERATIONS))
    ints = {name: frames.pick(column, rows) for name, column in ints.items()}
    process = fill_process(ints["process"], launches.process)
    call = call_rows((process, ints["correlation"]), launches)
    kind = ints["kind"]
    known_kind = np.where((kind >= 0) & (kind < UNKNOWN_MEMORY), kind, UNKNOWN_MEMORY)
    computed: dict[str, frames.Column] = {
        "time": _times(ints["time"], call, launches),
        "thread": lookup(launches.thread, call),
        "process": process,
        "kind": frames.Names(known_kind, frames.MEMORY_KINDS),
        "name": frames.Names.of(texts_of(columns, "name").take(rows).decode()),
    }
    return frames.Memory(ints | computed)


def _times(time: Ints, call: Ints, launches: frames.Launches) -> Ints:
    """Return the times, that of the call where there is none."""
    call_times = lookup(launches.start, call)
    return np.where((time <= 0) & (call_times != MISSING), call_times, time)


# -- Activities: kernels, memcpys, memsets and graph launches


def activities(
    read: dict[str, Columns], strings: Strings, callers: Ints | None = None
) -> frames.Activities:
    """Return the frame `activities`: kernels, memcpys, memsets and whole graphs, in this order.

    ``callers`` are the processes of the capture; None for those of the API calls in ``read``.
    """
    parts = [
        (frames.KERNEL, _kernels(_ints(read["kernels"]), strings)),
        (frames.MEMCPY, _copies(_ints(read["copies"]))),
        (
            frames.MEMCPY,
            _with_name(_ints(read["decompressions"]), schema.DECOMPRESSION),
        ),
        (frames.MEMSET, _with_name(_ints(read["fills"]), schema.FILL)),
        (frames.GRAPH, _graphs(_ints(read["graphs"]))),
    ]
    tables = [_activity_frame(columns, kind) for kind, columns in parts]
    table = frames.Activities.concat([f for f in tables if len(f)] or tables[:1])
    if callers is None:
        callers = frames.process_of(_ints(read["launches"])["thread"])
    return table.replace(process=fill_process(table.process, callers))


def _kernels(columns: dict[str, Ints], strings: Strings) -> dict[str, Ints | frames.Names]:
    names = {c: strings.column(columns[c]) for c in ("name", "full_name", "mangled")}
    return {**columns, **names}


def _copies(columns: dict[str, Ints]) -> dict[str, Ints | frames.Names]:
    kinds, codes = np.unique(columns["copy_kind"], return_inverse=True)
    labels = [schema.COPY_KINDS.get(int(k), f"kind {k}") for k in kinds]
    return columns | _name_columns(codes, [f"[CUDA memcpy {label}]" for label in labels])


def _with_name(columns: dict[str, Ints], name: str) -> dict[str, Ints | frames.Names]:
    return columns | _name_columns(np.zeros(len(columns["start"]), np.int64), [name])


def _graphs(columns: dict[str, Ints]) -> dict[str, Ints | frames.Names]:
    ids, codes = np.unique(columns["graph"], return_inverse=True)
    return columns | _name_columns(codes, [schema.GRAPH.format(i) for i in ids])


def _name_columns(codes: Ints, names: list[str]) -> dict[str, frames.Names]:
    """Return the three name columns of activities other than kernels: they are equal."""
    return dict.fromkeys(("name", "full_name", "mangled"), frames.Names(codes, names))


def _activity_frame(columns: dict[str, Ints | frames.Names], kind: str) -> frames.Activities:
    codes = np.full(len(columns["start"]), frames.ACTIVITY_KINDS.index(kind), np.int64)
    return frames.Activities(columns | {"kind": frames.Names(codes, frames.ACTIVITY_KINDS)})


def fill_process(process: Ints, callers: Ints) -> Ints:
    """Return the processes; where one is missing, the only process of all records and calls."""
    is_unknown = process == MISSING
    if not is_unknown.any():
        return process
    known = np.unique(np.concatenate((process[~is_unknown], callers)))
    return np.where(is_unknown, known[0], process) if len(known) == 1 else process


def _ints(columns: Columns) -> dict[str, Ints]:
    return {name: c for name, c in columns.items() if isinstance(c, np.ndarray)}
