"""An Nsight Systems SQLite export becomes a `Report`. The file is only ever read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, Database, Query, ints_of, texts_of
from importers.errors import NotAReport, NothingRecorded
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.annotations import Annotations, Strings, api_name, pooled
from importers.nsys.devices import activities, ended, memory, waits
from importers.nsys.table import FLAG, Column, Details, Present, Table, asked
from importers.report import LONGEST_NS, Facts, Report
from importers.texts import Ints, Texts, unique_names

# -- What a capture says of where it was taken: its host, and which of several processes it is of


# What launchers set, as `bridge.annotate.recording.writer` has them: the first that is a number counts.
PLACES: Mapping[str, tuple[str, ...]] = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
}
LONGEST = 9  # digits of a number that is a place
KEY = "environment"


def identity(read: Mapping[str, Columns]) -> dict[str, Any]:
    """Return ``host``, and as ``environment`` the places, of what an export says: nothing where its parts disagree."""
    system, capture = _rows(read["system"]), _rows(read["capture"])
    hosts = {value for name, value in system if name == schema.HOST}
    whole = {value for name, value in system if name == schema.ENVIRONMENT}
    own = [value for name, value in capture if name == schema.OF_PROGRAM]
    of_tool = whole.pop().split("\0") if len(whole) == 1 else []
    found = places(of_tool) | places(own)
    return ({"host": hosts.pop()} if len(hosts) == 1 else {}) | ({KEY: found} if found else {})


def places(entries: Iterable[str]) -> dict[str, int]:
    """Return the place of a process among several by entries of its environment, ``RANK=3`` or ``RANK="3"``."""
    wanted = {variable for names in PLACES.values() for variable in names}
    parts = (entry.partition("=") for entry in entries)
    values = {name: value.strip('"') for name, _, value in parts if name in wanted}
    first = {
        place: next((values[v] for v in names if _is_number(values.get(v, ""))), None)
        for place, names in PLACES.items()
    }
    return {place: int(value) for place, value in first.items() if value is not None}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST


def _rows(columns: Columns) -> list[tuple[str, str]]:
    pairs = (texts_of(columns, column).decode() for column in ("name", "value"))
    return list(zip(*pairs, strict=True))


# -- The GPU behind each device number of a process, and what is known of it, as the frame `devices`


def devices(read: dict[str, Columns], on_device: pd.DataFrame) -> pd.DataFrame:
    """Return a row per (process, device number) that was used."""
    used = on_device[["process", "device"]].drop_duplicates().sort_values(["process", "device"])
    process, device = used["process"].to_numpy(), used["device"].to_numpy()
    gpus = read["gpus"]
    gpu = _gpu_of(process, device, read)
    rows = {number: row for row, number in enumerate(ints_of(gpus, "gpu").tolist())}
    row = np.array([rows.get(number, MISSING) for number in gpu.tolist()], np.int64)
    names = [*texts_of(gpus, "name").decode(), ""]
    facts = {name: np.append(ints_of(gpus, name), MISSING)[row] for name in frames.DEVICE_FACTS}
    name = frames.named([names[r] for r in row.tolist()])
    return frames.frame(
        "devices", {"process": process, "device": device, "gpu": gpu, "name": name, **facts}
    )


def _gpu_of(process: Ints, device: Ints, read: dict[str, Columns]) -> Ints:
    declared = [ints_of(read["devices"], c).tolist() for c in ("pid", "device", "gpu")]
    gpu_of: dict[tuple[int, int], int] = {}
    for pid, number, gpu in zip(*declared, strict=True):
        # Processes of two machines may have one pid: of two GPUs neither is known to be meant.
        gpu_of[pid, number] = gpu if gpu_of.get((pid, number), gpu) == gpu else MISSING
    gpus = read["gpus"]
    by_number = dict(
        zip(ints_of(gpus, "device").tolist(), ints_of(gpus, "gpu").tolist(), strict=True)
    )
    keys = zip(((process >> 24) & schema.THREAD_BITS).tolist(), device.tolist(), strict=True)
    found = [gpu_of.get((pid, number), by_number.get(number, MISSING)) for pid, number in keys]
    return np.array(found, np.int64)


# -- What the profiler says of itself: its overhead, its diagnostics, and what else it recorded, at a cost


def overhead(columns: Columns, strings: Strings) -> pd.DataFrame:
    """Return a row per time in which the profiler itself worked on a thread."""
    ints = ended({name: ints_of(columns, name) for name in columns})
    return frames.frame(
        "overhead",
        {**ints, "process": _process(ints["thread"]), "name": strings.column(ints["name"])},
    )


def diagnostics(columns: Columns, strings: Strings) -> pd.DataFrame:
    """Return a row per message of the profiler; one of no known severity is of severity 0."""
    ints = {name: ints_of(columns, name) for name in columns if name != "text"}
    severity = ints["severity"]
    known = (severity > 0) & (severity < len(frames.SEVERITIES))
    pool, text = pooled(texts_of(columns, "text"), ints["text_id"], strings)
    name = frames.names(*unique_names(text, [_line(one) for one in pool.decode()]))
    return frames.frame(
        "diagnostics", {**ints, "severity": np.where(known, severity, 0), "name": name}
    )


def beside(database: Database, tables: Mapping[str, Present]) -> dict[str, int]:
    """Return how many rows there are of what else was recorded, by what it is; what was not is left out."""
    there = {what: of.name for what, of in schema.BESIDE.items() if of.name in tables}
    bounds = database.bounds(there.values())
    found = {what: bounds[name][1] - bounds[name][0] + 1 for what, name in there.items()}
    return {what: rows for what, rows in found.items() if rows > 0}


def _process(thread: Ints) -> Ints:
    return np.where(thread == MISSING, MISSING, thread & ~schema.THREAD_BITS)


def _line(text: str) -> str:
    """Return a message without the tabs and line ends that some have."""
    return " ".join(text.split())


# -- An Nsight Systems SQLite export becomes a `Report`. The file is only ever read


HEADER = b"SQLite format 3\0"
HEADER_BYTES = 100


def read(path: Path, *, details: Details = True) -> Report:
    """Return what an export holds; raises a `ReportError` if it is no sound profile.

    Columns that only say more of a single row are left missing, but for the ``details`` asked for.
    """
    before = sound(path)
    with Database(path) as database:
        columns = _columns(path, database, details=details)
        wanted = asked(details, schema.OVERHEAD.detail)
        also = beside(database, database.tables()) if wanted else {}
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise NotAReport(f"{path.name}: changed while it was read; wait until nsys has finished")
    return report_of(path, columns, also)


def sound(path: Path) -> os.stat_result:
    """Check, without SQLite, that the file is a whole database that nobody is writing to."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES or not head.startswith(HEADER):
        raise NotAReport(
            f"{path.name}: not an SQLite database; give an export of nsys or an .nsys-rep"
        )
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise NotAReport(
                f"{path.name}: {beside.name} beside it holds changes not yet merged;"
                " wait until its writer has finished, or open it once with sqlite3"
            )
    _whole(path, head)
    return path.stat()


def _whole(path: Path, head: bytes) -> None:
    """Compare the size with the count of pages in the header (sqlite.org/fileformat.html, 1.3)."""
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages, counter, valid_for = (int.from_bytes(head[at : at + 4], "big") for at in (28, 24, 92))
    size = path.stat().st_size
    said = pages * page if counter == valid_for else size  # else by a writer that does not count
    if said != size or not page or size % page:
        raise NotAReport(
            f"{path.name}: {size} bytes where its header says {pages} pages of {page}:"
            " truncated or still being written; export or copy it again"
        )


def queries_of(path: Path, tables: Mapping[str, Present], *, details: Details) -> dict[str, Query]:
    """Return how to read each table that is there; NotAReport for what is no export, or of an unknown schema."""
    if schema.STRINGS.name not in tables:
        raise NotAReport(f"{path.name}: an SQLite database, but not an Nsight Systems export")
    try:
        queries = {o: table.query(tables, details=details) for o, table in schema.READ.items()}
    except NotAReport as error:
        raise NotAReport(f"{path.name}: {error}") from error
    return {ours: query for ours, query in queries.items() if query}


def _columns(path: Path, database: Database, *, details: Details) -> dict[str, Columns]:
    tables = database.tables()
    found = database.read(queries_of(path, tables, details=details))
    if flags(found.get("annotations", {})) and (rest := schema.ANNOTATIONS.rest(tables)):
        found["annotations"] |= database.read({"rest": rest})["rest"]
    return {ours: complete(table, found.get(ours, {})) for ours, table in schema.READ.items()}


def flags(columns: Columns) -> bool:
    """Take the flags out of the types of annotations; return whether there were any."""
    types = ints_of(columns, "type") if columns else np.empty(0, np.int64)
    flagged = bool((types >= FLAG).any())
    if flagged:
        columns["type"] = types & (FLAG - 1)
    return flagged


def complete(table: Table, found: Columns) -> Columns:
    """Return all columns of a table, those not read missing in every row."""
    rows = len(next(iter(found.values()))) if found else 0
    return {
        name: _without_none(found[name], column) if name in found
        else Texts(np.empty(0, np.uint8), np.zeros(rows + 1, np.int64)) if column.text
        else np.broadcast_to(np.int64(column.missing), (rows,))
        for name, column in table.columns.items()
    }  # fmt: skip


def _without_none(values: Ints | Texts, column: Column) -> Ints | Texts:
    """Put what is missing in place of a value that means nothing."""
    if column.none is None or isinstance(values, Texts) or not len(values):
        return values
    if values.strides == (0,):  # one value throughout
        only = column.missing if values[0] == column.none else values[0]
        return np.broadcast_to(np.int64(only), (len(values),))
    return np.where(values == column.none, column.missing, values)


@dataclass(frozen=True)
class Whole:
    """What is known of an export of which a part is read: its facts, when what never ended does, who called or worked."""

    facts: Facts
    last: int
    callers: Ints


def report_of(
    path: Path,
    read: dict[str, Columns],
    also: Mapping[str, int],
    whole: Whole | None = None,
) -> Report:
    """Return what columns of an export are, or those of a part of the ``whole``."""
    strings = Strings(ints_of(read["strings"], "id"), texts_of(read["strings"], "value"))
    annotations = Annotations.of(read["annotations"], strings)
    launches = _launches(read["launches"], strings)
    on_device = activities(read, strings, whole.callers if whole else None)
    waited, held = waits(read, launches), memory(read["memory"], launches)
    own = overhead(read["overhead"], strings)
    session = int(ints_of(read["session"], "duration").max(initial=MISSING))
    last = whole.last if whole else _span(launches, on_device)[1]
    ranges, marks = annotations.ranges(last, session), annotations.marks()
    seen = (ranges, launches, on_device, marks)
    facts = whole.facts if whole else _facts(path, read, seen, (waited, held, own))
    return Report(
        source=(name_of(path),),
        facts=(replace(facts, beside=also),),
        ranges=ranges,
        launches=launches,
        activities=on_device,
        marks=marks,
        graph_nodes=_graph_nodes(read),
        waits=waited,
        memory=held,
        overhead=own,
        diagnostics=diagnostics(read["diagnostics"], strings),
        threads=_threads(read["threads"], strings),
        processes=_processes(read["processes"]),
        devices=devices(read, on_device),
        texts=annotations.texts,
    )


def _facts(
    path: Path,
    read: Mapping[str, Columns],
    seen: Sequence[pd.DataFrame],
    beside: Sequence[pd.DataFrame],
) -> Facts:
    """Return the facts of an export; ``seen`` are ranges, API calls, activities and marks."""
    span, opaque = _span(*seen), int((seen[2]["kind"] == frames.GRAPH).sum())
    outside = _span(*seen, *beside) if sum(map(len, beside)) else span
    return facts_of(path, read, [len(table) for table in seen[:3]], opaque, (span, outside))


def name_of(path: Path) -> str:
    """Return what a file is called; a name may hold any bytes."""
    return os.fsencode(path.name).decode(errors="replace")


def facts_of(
    path: Path,
    read: Mapping[str, Columns],
    rows: Sequence[int],
    opaque: int,
    spans: tuple[tuple[int, int], tuple[int, int]],
) -> Facts:
    """Return the facts of an export with so many ranges, API calls and activities, of these graphs as a whole.

    ``spans`` are what was recorded and what the profiler saw beside it. Raises a `ReportError` where that is nothing, or
    centuries.
    """
    if not sum(rows):
        raise NothingRecorded(
            f"{path.name}: no ranges, no CUDA calls and no kernels;"
            " was it recorded with --trace=cuda,nvtx, and did the export succeed?"
        )
    name, (span, outside) = name_of(path), spans
    if outside[1] - outside[0] > LONGEST_NS:
        raise NotAReport(
            f"{name}: damaged (its times are centuries apart); export or copy it again"
        )
    said = _warnings(name, rows, opaque)
    return Facts(*_versions(read), span, said, _epoch(read), identity(read))


def _launches(columns: Columns, strings: Strings) -> pd.DataFrame:
    ints = ended({name: ints_of(columns, name) for name in columns})
    process = ints["thread"] & ~schema.THREAD_BITS
    name = strings.column(ints["name"], clean=api_name)
    return frames.frame("launches", {**ints, "process": process, "name": name})


def _graph_nodes(read: dict[str, Columns]) -> pd.DataFrame:
    """Return the creations of graph nodes, from whichever table has them."""
    ints = {name: ints_of(read["graph_nodes"], name) for name in read["graph_nodes"]}
    if not len(ints["node"]):
        old = {name: ints_of(read["graph_nodes_old"], name) for name in ints}
        nodes = np.flatnonzero(old["node"] != MISSING)  # else it tells of whole graphs
        ints = {name: column[nodes] for name, column in old.items()}
    return frames.frame("graph_nodes", {**ints, "process": ints["thread"] & ~schema.THREAD_BITS})


def _span(*found: pd.DataFrame) -> tuple[int, int]:
    """First start and last end of what was recorded."""
    columns = [frames.ints(t, c) for t in found for c in ("time", "start", "end") if c in t]
    timed = [column for column in columns if len(column)]
    if not timed:
        return (0, 0)
    return min(int(c.min()) for c in timed), max(int(c.max()) for c in timed)


def _versions(read: Mapping[str, Columns]) -> tuple[str, str]:
    known: dict[str, str] = {}
    for name in ("versions_old", "versions"):
        pairs = texts_of(read[name], "name").decode(), texts_of(read[name], "value").decode()
        known |= dict(zip(*pairs, strict=True))
    return known.get(schema.PRODUCT_VERSION, ""), known.get(schema.SCHEMA_VERSION, "")


def _epoch(read: Mapping[str, Columns]) -> int:
    """Return when the times of the report are 0, in ns of the epoch; of several sessions' unknown."""
    found = set(ints_of(read["epoch"], "epoch").tolist())
    return int(found.pop()) if len(found) == 1 else MISSING


def _threads(columns: Columns, strings: Strings) -> pd.DataFrame:
    """Name threads; of several names the one of highest priority counts, then the first by letter."""
    thread = ints_of(columns, "thread")
    named = strings.column(ints_of(columns, "name"))
    table = pd.DataFrame(
        {"thread": thread, "name": named.astype(object), "p": -ints_of(columns, "priority")}
    )
    table = table.sort_values(["thread", "p", "name"]).drop_duplicates("thread")
    ours = table["thread"].to_numpy()
    name = frames.named(table["name"].tolist())
    return frames.frame(
        "threads", {"thread": ours, "process": ours & ~schema.THREAD_BITS, "name": name}
    )


def _processes(columns: Columns) -> pd.DataFrame:
    name = frames.named(texts_of(columns, "name").decode())
    return frames.frame("processes", {"process": ints_of(columns, "process"), "name": name})


def _warnings(name: str, rows: Sequence[int], opaque: int) -> tuple[str, ...]:
    """Say what is missing; ``rows`` are those of ranges, launches and activities."""
    advice = (
        "no NVTX ranges: nothing to attribute kernels to; was it recorded with --trace=nvtx?",
        "no CUDA API calls: kernels cannot be led back to their ops",
        "no kernels, memcpys or memsets; was it recorded with --trace=cuda?",
    )
    said = [text for text, there in zip(advice, rows, strict=True) if not there]
    if opaque:
        said.append(
            f"{opaque} CUDA graph launches are recorded as a whole;"
            " nsys profile --cuda-graph-trace=node shows the kernels in them"
        )
    return tuple(f"{name}: {text}" for text in said)
